package tlsconf

import (
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestTheCertificateOfAReplicaNamesItAndItsCluster(t *testing.T) {
	t.Parallel()
	r := replica(t, newTestCA(t), ReplicaRequest{ServerID: "n1", Hosts: []string{"m1", "10.0.0.1", "::1"}})
	if r.ClusterID != testCluster || r.ServerID != "n1" {
		t.Errorf("got %s of %s", r.ServerID, r.ClusterID)
	}
	c := r.Cert
	if got := c.URIs[0].String(); got != "spiffe://"+testCluster+"/replica/n1" {
		t.Errorf("URI %s", got)
	}
	if !slices.Equal(c.DNSNames, []string{"m1"}) || len(c.IPAddresses) != 2 || !c.IPAddresses[0].Equal(net.IPv4(10, 0, 0, 1)) {
		t.Errorf("hosts %v %v", c.DNSNames, c.IPAddresses)
	}
	if !slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}) || c.IsCA {
		t.Errorf("usage %v, CA %v", c.ExtKeyUsage, c.IsCA)
	}
	if got := c.NotAfter.Sub(testNow); got != DefaultValidity {
		t.Errorf("valid for %s", got)
	}
}

func TestACAThatIsLoadedIssuesAsBefore(t *testing.T) {
	t.Parallel()
	ca, dir := newTestCA(t), filepath.Join(t.TempDir(), "new", "ca")
	if err := ca.Save(dir); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, CAKeyFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key has %v, %v", info.Mode(), err)
	}
	again, err := LoadCA(dir)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := again.ClusterID(); err != nil || id != testCluster || KeyHash(again.Cert) != KeyHash(ca.Cert) {
		t.Errorf("got cluster %s, %v", id, err)
	}
	replica(t, again, ReplicaRequest{ServerID: "n1"})
	wantError(t, ca.Save(dir), CAKeyFile, "it exists")
}

func TestACAAndTheKeyOfAnotherAreRefused(t *testing.T) {
	t.Parallel()
	one, two := t.TempDir(), t.TempDir()
	for _, dir := range []string{one, two} {
		if err := newTestCA(t).Save(dir); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, filepath.Join(one, CAKeyFile), readTestFile(t, two, CAKeyFile), 0o600)
	_, err := LoadCA(one)
	wantError(t, err, CAKeyFile, "not the key of a CA")
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	t.Parallel()
	ca := newTestCA(t)
	for want, r := range map[string]ReplicaRequest{
		"invalid server id":        {ServerID: "a/b"},
		`invalid host "m1:7460"`:   {ServerID: "n1", Hosts: []string{"m1:7460"}},
		"invalid cluster id":       {ServerID: "n1", ClusterID: "mine"},
		"the CA expires at 2036-0": {ServerID: "n1", Validity: 20 * 365 * 24 * time.Hour},
		"at least 1h":              {ServerID: "n1", Validity: time.Minute},
	} {
		_, err := ca.IssueReplica(r, testNow)
		wantError(t, err, want)
	}
	if _, err := NewCA("other", testNow); err == nil {
		t.Error("a CA without a valid cluster id was created")
	}
}

func TestOnlyTheExactFormNamesAReplica(t *testing.T) {
	t.Parallel()
	r := replica(t, newTestCA(t), ReplicaRequest{ServerID: "n1"})
	for _, change := range []func(*x509.Certificate){
		func(c *x509.Certificate) { c.URIs = nil },
		func(c *x509.Certificate) { c.URIs = append(c.URIs, replicaURI(testCluster, "n2")) },
		func(c *x509.Certificate) { c.URIs[0].Scheme = "https" },
		func(c *x509.Certificate) { c.URIs[0].Path = "/worker/n1" },
		func(c *x509.Certificate) { c.URIs[0].Path = "/replica/n1/x" },
		func(c *x509.Certificate) { c.URIs[0].Path = "/replica/" },
		func(c *x509.Certificate) { c.URIs[0].Host = "cluster" },
		func(c *x509.Certificate) { c.URIs[0].RawQuery = "a=b" },
		func(c *x509.Certificate) { c.URIs[0].Fragment = "a" },
	} {
		cert := *r.Cert
		cert.URIs = append(cert.URIs[:0:0], replicaURI(testCluster, "n1"))
		change(&cert)
		if _, _, err := PeerID(&cert); err == nil {
			t.Errorf("%v was accepted", cert.URIs)
		}
	}
}

func TestACertificateCoversTheIDsThatItsReplicaGetsWhenItReturns(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{"n1": true, "n1-1": true, "n1-23": true, "n1-": false, "n1-x": false, "n10": false, "n2": false, "n1-1-1": false} {
		if Covers("n1", id) != want {
			t.Errorf("%s: got %v", id, !want)
		}
	}
}
