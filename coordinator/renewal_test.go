package coordinator

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dtask/dtask/internal/tlsconf"
)

// A cluster that was off for a year starts, and its coordinators renew their certificates
// before a client needs them.
func TestACoordinatorThatWasOffForAYearRenewsItsCertificateAtTheStart(t *testing.T) {
	t.Parallel()
	dir, past := t.TempDir(), time.Now().Add(-365*24*time.Hour)
	ca, err := tlsconf.NewCA(tlsconf.NewClusterID(), past)
	if err != nil {
		t.Fatal(err)
	}
	key, err := tlsconf.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.IssueReplica(tlsconf.ReplicaRequest{ServerID: "n1", Key: key.Public()}, past)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{ca.Save(dir), tlsconf.Save(dir, cert, key, ca.Cert)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cfg := Config{
		ID: "n1", DataDir: filepath.Join(shortDir(t), "n1"), Listen: "127.0.0.1:0", TLSDir: dir, MinFree: new(MinFree), Logger: slog.New(slog.DiscardHandler),
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	started, done := make(chan struct{}), make(chan error, 1) // size 1: the result of Run
	cfg.Started = func(string, string) { close(started) }
	go func() { done <- Run(ctx, cfg) }()
	<-started
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(2 * time.Minute); ; <-tick.C {
		r, err := tlsconf.LoadReplica(dir)
		if err == nil && r.OwnDates(time.Now()) == nil {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("not renewed: %v", err)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// By a clock that was years ahead or in 1970, a certificate was renewed for another time.
// Clients refuse it as soon as the clock is right.
func TestACertificateThatTheClockContradictsIsRenewedWithinAMinute(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var wall atomic.Pointer[time.Time]
	r := &replica{clusterClock: newClusterClock(func() time.Time { return *wall.Load() }), security: secured(t, Config{TLSDir: issued(t, 0)})}
	for _, wrong := range []time.Time{time.Unix(0, 0), now.Add(5 * 365 * 24 * time.Hour)} {
		wall.Store(&now)
		dates, renews := make(chan time.Time), make(chan bool, 1) // size 1: the result
		go func() { renews <- r.awaitRenewal(t.Context(), nil, dates, new(<-chan struct{})) }()
		for range 2 { // when the second minute is received, the first was without effect
			select {
			case dates <- now:
			case <-renews:
				t.Fatal("a valid certificate is renewed before its time")
			}
		}
		wall.Store(&wrong)
		for renewed := false; !renewed; {
			select {
			case dates <- now:
			case renewed = <-renews:
			}
		}
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	if r.awaitRenewal(ctx, nil, nil, new(<-chan struct{})) {
		t.Error("a replica that stops renews its certificate")
	}
}
