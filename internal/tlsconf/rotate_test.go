package tlsconf

import (
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// rotation is a CA that replaces another one.
type rotation struct {
	old, next *CA
	cross     *x509.Certificate
}

func newRotation(t *testing.T) rotation {
	t.Helper()
	r := rotation{old: newTestCA(t), next: newTestCA(t)}
	var err error
	if r.cross, err = r.old.CrossSign(r.next, testNow); err != nil {
		t.Fatal(err)
	}
	return r
}

// during is the bundle while the old CA is trusted, and after when it is not any more.
func (r rotation) during() []*x509.Certificate {
	return []*x509.Certificate{r.next.Cert, r.cross, r.old.Cert}
}

func (r rotation) after() []*x509.Certificate { return []*x509.Certificate{r.next.Cert, r.cross} }

// adopted returns a replica of the old CA that has adopted a bundle.
func (r rotation) adopted(t *testing.T, id string, bundle []*x509.Certificate) *Replica {
	t.Helper()
	dir := t.TempDir()
	must(t, r.old.Save(dir))
	issue(t, r.old, dir, ReplicaRequest{ServerID: id})
	return adopt(t, dir, r.next, bundle)
}

// adopt makes the replica of a directory adopt a bundle.
func adopt(t *testing.T, dir string, ca *CA, bundle []*x509.Certificate) *Replica {
	t.Helper()
	before, err := LoadReplica(dir)
	must(t, err)
	with := *ca
	with.Roots = bundle
	must(t, before.Adopt(dir, &with, testNow))
	after, err := LoadReplica(dir)
	must(t, err)
	if !after.Adopted(bundle) || KeyHash(after.Cert) != KeyHash(before.Cert) {
		t.Errorf("not adopted, or with another key: %+v", after)
	}
	return after
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestThoseWhoKnowOnlyTheOldCAVerifyCertificatesOfTheNewOne(t *testing.T) {
	t.Parallel()
	r := newRotation(t)
	server := serverTLS(peering(r.adopted(t, "n1", r.during())))
	now := func() time.Time { return testNow }
	for name, trust := range map[string]Trust{
		"the old CA": {Roots: r.old.roots()}, "the old key": {Keys: [][32]byte{KeyHash(r.old.Cert)}},
		"the new CA": {Roots: r.next.roots()}, "the new key": {Keys: [][32]byte{KeyHash(r.next.Cert)}}, "both": {Roots: r.during()},
	} {
		if _, serverErr, clientErr := handshake(t, server, trust.Config(nil, now)); serverErr != nil || clientErr != nil {
			t.Errorf("%s: %v, %v", name, serverErr, clientErr)
		}
	}
	connect(t, server, peering(replica(t, r.old, ReplicaRequest{ServerID: "n2"})).RaftClient("n1"))
}

func TestTheOldCAIsRefusedAfterItWasDropped(t *testing.T) {
	t.Parallel()
	r := newRotation(t)
	member := r.adopted(t, "n1", r.after())
	now := func() time.Time { return testNow }
	_, serverErr, _ := handshake(t, serverTLS(peering(member)), peering(replica(t, r.old, ReplicaRequest{ServerID: "n2"})).RaftClient("n1"))
	wantError(t, serverErr, "not issued by a CA")
	// A worker or context that was away verifies by the cross-certificate; a join string of
	// the old CA, which names only a key, does not count any more.
	connect(t, serverTLS(peering(member)), Trust{Roots: r.old.roots()}.Config(nil, now))
	_, _, clientErr := handshake(t, serverTLS(peering(member)), Trust{Keys: [][32]byte{KeyHash(r.old.Cert)}}.Config(nil, now))
	if !errors.Is(clientErr, ErrOtherCA) {
		t.Errorf("the key of the old CA: %v", clientErr)
	}
	compromised := r.adopted(t, "n1", r.next.roots())
	if _, _, err := handshake(t, serverTLS(peering(compromised)), (Trust{Roots: r.old.roots()}).Config(nil, now)); !errors.Is(err, ErrOtherCA) {
		t.Errorf("without a cross-certificate: %v", err)
	}
}

// A process that is killed between two writes finds files that belong together.
func TestFilesBelongTogetherWhileACAIsAdopted(t *testing.T) {
	t.Parallel()
	r := newRotation(t)
	dir := t.TempDir()
	must(t, r.old.Save(dir))
	issue(t, r.old, dir, ReplicaRequest{ServerID: "n1"})
	must(t, r.next.SaveNext(dir))
	if ca, err := FindCA(dir, r.during(), KeyHash(r.next.Cert)); err != nil || !ca.Cert.Equal(r.next.Cert) {
		t.Errorf("the next key was not found: %v", err)
	}
	if info, err := os.Stat(filepath.Join(dir, NextCAKeyFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	// Files as they are after each write of Adopt.
	for _, step := range []func() error{
		func() error { return replaceFile(filepath.Join(dir, CAFile), encodeCerts(r.during()...), 0o644) },
		func() error {
			r.next.Roots = r.during()
			old, err := LoadReplica(dir)
			must(t, err)
			cert, key, err := old.reissue(r.next, testNow)
			must(t, err)
			return Save(dir, cert, key, r.during()...)
		},
		func() error { return r.next.replaceKey(dir) },
	} {
		must(t, step())
		if _, err := LoadReplica(dir); err != nil {
			t.Error(err)
		}
		if _, err := LoadCA(dir); err != nil {
			t.Error(err)
		}
	}
	adopt(t, dir, r.next, r.after())
	if ca, err := LoadCA(dir); err != nil || !ca.Cert.Equal(r.next.Cert) || len(ca.Roots) != 2 {
		t.Errorf("got %+v, %v", ca, err)
	}
	if _, err := FindCA(dir, r.during(), KeyHash(r.old.Cert)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old key is still there: %v", err)
	}
}

func TestACertificateNeverOutlivesItsCA(t *testing.T) {
	t.Parallel()
	dir, ca := t.TempDir(), newTestCA(t)
	must(t, ca.Save(dir))
	issue(t, ca, dir, ReplicaRequest{ServerID: "n1"})
	first, err := LoadReplica(dir)
	must(t, err)
	late := ca.Cert.NotAfter.Add(-30 * 24 * time.Hour)
	must(t, first.Renew(dir, late))
	short, err := LoadReplica(dir)
	must(t, err)
	if !short.Cert.NotAfter.Equal(ca.Cert.NotAfter) || short.ShouldRenew(late.Add(29*24*time.Hour)) {
		t.Errorf("valid until %s, the CA until %s", short.Cert.NotAfter, ca.Cert.NotAfter)
	}
	next, err := NewCA(testCluster, late)
	must(t, err)
	cross, err := ca.CrossSign(next, late)
	must(t, err)
	if cross.NotAfter.After(ca.Cert.NotAfter) {
		t.Error("the cross-certificate outlives the CA that signed it")
	}
	cert, _, err := short.reissue(next, late)
	must(t, err)
	if cert.NotAfter.Sub(late) != DefaultValidity {
		t.Errorf("the new CA issues for %s", cert.NotAfter.Sub(late))
	}
}

func TestAWorkersKeyIsReplacedInOneStep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, err := OpenWorkerKey(dir)
	must(t, err)
	next, err := NextWorkerKey(dir)
	must(t, err)
	again, err := NextWorkerKey(dir)
	must(t, err)
	if KeyHash(parsed(t, next)) != KeyHash(parsed(t, again)) || KeyHash(parsed(t, next)) == KeyHash(parsed(t, old)) || !IsReplacingWorkerKey(dir) {
		t.Error("a repetition made another key, or the same one as before")
	}
	must(t, UseNextWorkerKey(dir))
	if now, err := OpenWorkerKey(dir); err != nil || KeyHash(parsed(t, now)) != KeyHash(parsed(t, next)) || IsReplacingWorkerKey(dir) {
		t.Errorf("the key was not replaced: %v", err)
	}
	if age := WorkerKeyAge(dir, time.Now().Add(400*24*time.Hour)); age < 399*24*time.Hour {
		t.Errorf("the key is %s old", age)
	}
}
