package tlsconf

import (
	"context"
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestARenewedCertificateIsUsedWithoutARestart(t *testing.T) {
	t.Parallel()
	ca, dir := newTestCA(t), t.TempDir()
	issue(t, ca, dir, ReplicaRequest{ServerID: "n1"})
	reloads := make(chan *Replica, 1) // size 1: the one reload of this test
	w, err := NewWatcher(WatcherConfig{Dir: dir, Interval: time.Millisecond, Reloaded: func(r *Replica) { reloads <- r }})
	if err != nil {
		t.Fatal(err)
	}
	server := serverTLS(Peering{Source: w.Current})
	client := Trust{Roots: ca.roots()}.Config(nil, func() time.Time { return testNow })
	var seen tls.ConnectionState
	verify := client.VerifyConnection
	client.VerifyConnection = func(state tls.ConnectionState) error {
		seen = state
		return verify(state)
	}
	serial := func() string {
		connect(t, server, client)
		return seen.PeerCertificates[0].SerialNumber.String()
	}
	before := serial()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	issue(t, ca, dir, ReplicaRequest{ServerID: "n1"})
	select {
	case <-reloads:
	case <-time.After(testTimeout):
		t.Fatal("not reloaded")
	}
	if serial() == before {
		t.Error("the old certificate is still in use")
	}
	cancel()
	<-done
}

func TestABadPairIsRefusedAndTheOldOneStays(t *testing.T) {
	t.Parallel()
	ca, dir := newTestCA(t), t.TempDir()
	issue(t, ca, dir, ReplicaRequest{ServerID: "n1"})
	var reports []error
	reloads := 0
	w, err := NewWatcher(WatcherConfig{Dir: dir, Checked: func(err error) { reports = append(reports, err) }, Reloaded: func(*Replica) { reloads++ }})
	if err != nil {
		t.Fatal(err)
	}
	first := w.Current()
	w.Check()
	wantReports(t, reports, 1, 0)
	if w.Failures() != 0 || reloads != 0 || w.Current() != first {
		t.Error("unchanged files count as a reload")
	}
	good := readTestFile(t, dir, CertFile)
	writeFile(t, filepath.Join(dir, CertFile), good[:100], 0o644)
	w.Check()
	w.Check()
	wantReports(t, reports, 1, 2)
	if w.Failures() != 2 || w.Current() != first {
		t.Errorf("%d failures", w.Failures())
	}
	other := t.TempDir()
	issue(t, ca, other, ReplicaRequest{ServerID: "n2"})
	for _, name := range []string{CertFile, KeyFile} {
		if err := os.Rename(filepath.Join(other, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	w.Check()
	wantReports(t, reports, 1, 3)
	if w.Current() != first {
		t.Error("the certificate of another replica is used")
	}
	wantError(t, reports[3], "replica n2", "this is replica n1", "restart")
	for _, name := range []string{CertFile, KeyFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	issue(t, ca, dir, ReplicaRequest{ServerID: "n1"})
	w.Check()
	if reloads != 1 || w.Current() == first {
		t.Error("a good pair after a bad one is not used")
	}
}

// wantReports expects good readings of the files, then bad ones.
func wantReports(t *testing.T, reports []error, good, bad int) {
	t.Helper()
	if len(reports) != good+bad {
		t.Fatalf("reported %v", reports)
	}
	for i, err := range reports {
		if (err == nil) != (i < good) {
			t.Errorf("report %d is %v", i, err)
		}
	}
}
