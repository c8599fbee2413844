package tlsconf

import (
	"slices"
	"testing"
	"time"
)

func TestACertificateIsRenewedForItsKeyOnceHalfOfItsTimeHasPassed(t *testing.T) {
	t.Parallel()
	dir, ca := t.TempDir(), newTestCA(t)
	if err := ca.Save(dir); err != nil {
		t.Fatal(err)
	}
	issue(t, ca, dir, ReplicaRequest{ServerID: "n1", Hosts: []string{"m1", "10.0.0.1"}})
	first, err := LoadReplica(dir)
	if err != nil {
		t.Fatal(err)
	}
	issued := first.Cert.NotBefore
	for at, want := range map[time.Duration]bool{
		0: false, 44 * 24 * time.Hour: false, 46 * 24 * time.Hour: true, 365 * 24 * time.Hour: true, -time.Hour: true,
	} {
		if got := first.ShouldRenew(issued.Add(at)); got != want {
			t.Errorf("after %s: %v", at, got)
		}
	}
	later := issued.Add(365 * 24 * time.Hour) // it was off for a year
	if err := first.Renew(dir, later); err != nil {
		t.Fatal(err)
	}
	second, err := LoadReplica(dir)
	if err != nil {
		t.Fatal(err)
	}
	if second.ShouldRenew(later) || KeyHash(second.Cert) != KeyHash(first.Cert) || second.ServerID != "n1" ||
		!slices.Equal(second.Cert.DNSNames, first.Cert.DNSNames) || len(second.Cert.IPAddresses) != 1 ||
		second.Cert.NotAfter.Sub(second.Cert.NotBefore) != first.Cert.NotAfter.Sub(first.Cert.NotBefore) {
		t.Errorf("got %+v", second.Cert)
	}
}

func TestACertificateIsNotRenewedWithoutTheKeyOfTheCA(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	issue(t, newTestCA(t), dir, ReplicaRequest{ServerID: "n1"})
	r, err := LoadReplica(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Renew(dir, time.Now()); err == nil || HasCAKey(dir) {
		t.Errorf("renewed: %v", err)
	}
}
