package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

func TestTrustIsReplacedAsAWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if w.s.Trust() != nil || w.s.TrustMS() != 0 {
		t.Error("a new cluster trusts a root")
	}
	w.do(&SetTrust{Roots: [][]byte{{1}, {2}}, AtMS: 10}).do(&SetTrust{Roots: [][]byte{{1}, {2}}, AtMS: 20})
	if got := w.s.Trust(); !slices.EqualFunc(got, [][]byte{{1}, {2}}, bytes.Equal) || w.s.TrustMS() != 10 {
		t.Errorf("got %x since %d", got, w.s.TrustMS())
	}
	w.do(&SetTrust{Roots: [][]byte{{3}}, AtMS: 30})
	for what, o := range map[string]*SetTrust{
		"no root": {AtMS: 1}, "an empty root": {Roots: [][]byte{{}}, AtMS: 1}, "a long root": {Roots: [][]byte{make([]byte, maxRoot+1)}, AtMS: 1},
		"a duplicate root": {Roots: [][]byte{{1}, {1}}, AtMS: 1}, "many roots": {Roots: [][]byte{{1}, {2}, {3}, {4}, {5}}, AtMS: 1}, "no time": {Roots: [][]byte{{1}}},
	} {
		refused(t, w, what, Malformed, o)
	}
	if got := w.s.Trust(); len(got) != 1 || got[0][0] != 3 || w.s.TrustMS() != 30 {
		t.Errorf("got %x since %d", got, w.s.TrustMS())
	}
}

func TestTheKeysOfAReplicaAreReplaced(t *testing.T) {
	t.Parallel()
	pin := func(id string, hashes ...[32]byte) *PinReplica { return &PinReplica{id, hashes} }
	w := newWorld(t).do(pin("n2", hashed(1)), pin("n1", hashed(2), hashed(3)), pin("n2", hashed(4)))
	if got := w.s.ReplicaKeys("n2"); !slices.Equal(got, [][32]byte{hashed(4)}) {
		t.Errorf("n2 has the keys %x", got)
	}
	if got := w.s.ReplicaKeys("n1"); len(got) != 2 || w.s.ReplicaKeys("n3") != nil {
		t.Errorf("n1 has the keys %x, n3 %x", got, w.s.ReplicaKeys("n3"))
	}
	for what, o := range map[string]*PinReplica{
		"no server": pin("", hashed(1)), "no key": pin("n1"), "three keys": pin("n1", hashed(1), hashed(2), hashed(3)), "an empty key": pin("n1", [32]byte{}),
		"a duplicate key": pin("n1", hashed(1), hashed(1)), "a long id": pin(string(make([]byte, maxIdentityText+1)), hashed(1)),
	} {
		refused(t, w, what, Malformed, o)
	}
}

// Replicas that don't know identities must be able to restore the snapshots of a cluster
// that does not use them.
func TestAClusterWithoutIdentitiesHasNoFrameForThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(&SetClusterID{ID: "c0ffee"})
	plain := snapshotOf(t, w.s)
	if len(identityFrames(plain)) != 0 {
		t.Errorf("got the frames %x", identityFrames(plain))
	}
	w.try(&RevokeIdentity{IDs: []IdentityID{1}, AtMS: 1}, &SetTrust{}) // refused
	if len(identityFrames(snapshotOf(t, w.s))) != 0 {
		t.Error("a refused operation adds a frame")
	}
	for _, op := range []Op{&SetTrust{Roots: [][]byte{{1}}, AtMS: 1}, &PinReplica{"n1", [][32]byte{hashed(1)}}, workerToken()} {
		w := newWorld(t).do(op)
		frames := identityFrames(snapshotOf(t, w.s))
		sameState(t, "after a restore", restored(t, snapshotOf(t, w.s)), w.s)
		if frameKind(frames[0]) != frameTrust {
			t.Errorf("%T: the first frame has kind %d", op, frames[0])
		}
	}
}

// identitiesLog returns a log whose state has identities, join tokens and trust of every
// kind, at level 2.
func identitiesLog() []Entry {
	later := redeem("w1", 20)
	later.Replace, later.AtMS = true, 1900
	entries := [][]Op{
		{&SetClusterID{ID: "c0ffee"}, &SetLevel{Level: 2}},
		{&SetTrust{Roots: [][]byte{{0x30, 1}, {0x30, 2}}, AtMS: 900}, &PinReplica{"n1", [][32]byte{hashed(60)}}, &PinReplica{"n2", [][32]byte{hashed(61), hashed(62)}}},
		{&CreateIdentity{Name: "alice", Grant: Grant{Role: RoleAdmin}, Credential: Credential{Kind: TokenCredential, Hash: hashed(1)}, CreatedBy: "socket", CreatedMS: 1000, Key: "a"}},
		{workerToken(), redeem("w1", 2)},
		{&CreateIdentity{
			Name: "ci", Grant: Grant{Role: RoleSubmitter, Namespaces: []string{"batch", "etl"}}, Credential: Credential{Kind: TokenCredential, Hash: hashed(3), ExpiresMS: 2000},
			CreatedBy: "alice", CreatedMS: 1000,
		}},
		{&AddCredential{ID: 3, Credential: Credential{Kind: TokenCredential, Hash: hashed(4), ExpiresMS: 3000}, CreatedMS: 1800, OthersExpireMS: 1900}},
		{later},
		{&CreateJoinToken{Purpose: JoinCoordinator, Grant: Grant{Role: RoleReplica}, Hash: hashed(101), CreatedBy: "alice", CreatedMS: 1950}},
		{&RedeemJoinToken{Token: 2, SecretHash: hashed(101), Purpose: JoinCoordinator, Name: "n3", Credential: Credential{Kind: KeyCredential, Hash: hashed(63)}, AtMS: 1960}},
		{&RevokeJoinToken{ID: 2, AtMS: 1970, By: "alice"}},
	}
	log := make([]Entry, len(entries))
	for i, ops := range entries {
		log[i] = Entry{NowMS: int64(1000 + 100*i), Ops: ops}
	}
	return log
}

func TestReleasedSnapshotsWithIdentitiesAreReadForever(t *testing.T) {
	t.Parallel()
	readsReleasedSnapshot(t, "snapshot_v3_identities", "identities", identitiesLog(), describeIdentities)
}

// describeIdentities formats identities, join tokens and trust as text.
func describeIdentities(s *State) []byte {
	b := fmt.Appendf(nil, "digest %#x entries %d level %d\n", s.Digest(), s.Entries(), s.Level())
	for i := range s.Identities() {
		b = fmt.Appendf(b, "identity %+v\n", *i)
	}
	for x := range s.JoinTokens() {
		b = fmt.Appendf(b, "join token %+v\n", *x)
	}
	b = fmt.Appendf(b, "roots %x at %d\n", s.Trust(), s.TrustMS())
	for _, id := range []string{"n1", "n2"} {
		b = fmt.Appendf(b, "keys of %s: %x\n", id, s.ReplicaKeys(id))
	}
	return b
}

// damages of a state with identities, by the error that Check or a restore reports.
var identityDamages = map[string]func(s *State){
	"identity 1 follows identity 1": func(s *State) { s.identities.list[1] = s.identities.list[0] },
	"next is 3":                     func(s *State) { s.identities.next = 3 },
	"identity 1 is malformed":       func(s *State) { bend(s, 0, func(i *Identity) { i.Role = 0 }) },
	"identity 4 is malformed":       func(s *State) { bend(s, 3, func(i *Identity) { i.Credentials = nil }) },
	"identity 3 is malformed": func(s *State) {
		bend(s, 2, func(i *Identity) { i.Credentials = []Credential{i.Credentials[0], i.Credentials[0]} })
	},
	"unknown join token 9": func(s *State) { bend(s, 3, func(i *Identity) { i.JoinToken = 9 }) },
	"names": func(s *State) {
		bend(s, 2, func(i *Identity) { i.Role, i.Name = RoleWorker, "w1" })
	},
	"credential": func(s *State) { bend(s, 2, func(i *Identity) { i.Credentials[0].Hash = hashed(1) }) },
	"by its key": func(s *State) {
		bend(s, 3, func(i *Identity) { i.Key = "ra" })
		bend(s, 1, func(i *Identity) { i.Key = "ra" })
	},
	"join token 1 follows":          func(s *State) { s.joinTokens.list[1] = s.joinTokens.list[0] },
	"join token 2 follows":          func(s *State) { s.joinTokens.next = 2 },
	"join token 2 is malformed":     func(s *State) { bendToken(s, 1, func(x *JoinToken) { x.Purpose = JoinUser }) },
	"join token 1 is malformed":     func(s *State) { bendToken(s, 0, func(x *JoinToken) { x.Used = 4 }) },
	"join token 1 is not found":     func(s *State) { bendToken(s, 1, func(x *JoinToken) { x.Key = "j" }) },
	"malformed roots":               func(s *State) { s.trust.roots = [][]byte{{1}, {1}} },
	"keys of replica \"n1\"":        func(s *State) { s.trust.pins = []PinReplica{s.trust.pins[1], s.trust.pins[0]} },
	"malformed or unsorted keys of": func(s *State) { s.trust.pins = []PinReplica{{"n1", nil}} },
}

func bend(s *State, at int, f func(i *Identity)) {
	i := *s.identities.list[at]
	i.Credentials = slices.Clone(i.Credentials)
	f(&i)
	s.identities.write(s.own)[at] = &i
}

func bendToken(s *State, at int, f func(x *JoinToken)) {
	x := *s.joinTokens.list[at]
	f(&x)
	s.joinTokens.write(s.own)[at] = &x
}

func withIdentities(t *testing.T) *State {
	t.Helper()
	s := New()
	for i, e := range identitiesLog() {
		if r := s.Apply(e, nil); r != Accepted {
			t.Fatalf("entry %d: %v", i, r)
		}
	}
	return s
}

func TestASnapshotWithInvalidIdentitiesIsRefused(t *testing.T) {
	t.Parallel()
	for want, damage := range identityDamages {
		s := withIdentities(t)
		damage(s)
		if err := s.Check(); err == nil {
			t.Errorf("%s: Check returns no error", want)
		}
		if _, err := ReadSnapshot(bytes.NewReader(snapshotOf(t, s))); err == nil {
			t.Errorf("%s: restored", want)
		}
	}
	for want, damage := range map[string]func(s *State){
		"next 0": func(s *State) { s.identities.next = 0 },
		"tokens": func(s *State) { s.joinTokens.next = 0 },
	} {
		s := newWorld(t).do(&SetTrust{Roots: [][]byte{{1}}, AtMS: 1}).s
		damage(s)
		if _, err := ReadSnapshot(bytes.NewReader(snapshotOf(t, s))); err == nil {
			t.Errorf("%s: restored", want)
		}
	}
}

func TestAnEmptyOrSecondFrameOfTheTrustIsRefused(t *testing.T) {
	t.Parallel()
	frames := unframed(snapshotOf(t, withIdentities(t)))
	at := bytes.IndexByte(frames, byte(frameCluster))
	head := frames[:at+3+int(frames[at+1])]
	empty := []byte{byte(frameTrust), 5, 0, 1, 1, 0, 0, 0}
	full := identityFrames(snapshotOf(t, newWorld(t).do(&SetTrust{Roots: [][]byte{{1}}, AtMS: 1}).s))
	for what, c := range map[string]struct {
		frames []byte
		valid  bool
	}{
		"none": {nil, true}, "empty": {empty, false}, "full": {full, true}, "twice": {slices.Concat(full, full), false},
	} {
		if _, err := ReadSnapshot(bytes.NewReader(framed(slices.Concat(head, c.frames)))); (err == nil) != c.valid {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

// The digest of a replica whose identities differ by a bit differs from the first change
// of them on.
func TestADamagedIdentityIsDetectedWhenItChanges(t *testing.T) {
	t.Parallel()
	changes := []Op{&RevokeIdentity{IDs: []IdentityID{1, 3, 4}, AtMS: 5000}, &RevokeJoinToken{ID: 1, AtMS: 5000}, &SetTrust{Roots: [][]byte{{9}}, AtMS: 5000}, &PinReplica{"n1", [][32]byte{hashed(9)}}}
	for what, damage := range map[string]func(s *State){
		"role":       func(s *State) { bend(s, 2, func(i *Identity) { i.Role = RoleAdmin }) },
		"namespaces": func(s *State) { bend(s, 2, func(i *Identity) { i.Namespaces = []string{"batch"} }) },
		"labels":     func(s *State) { bend(s, 3, func(i *Identity) { i.Labels = nil }) },
		"expiry":     func(s *State) { bend(s, 2, func(i *Identity) { i.Credentials[1].ExpiresMS++ }) },
		"creator":    func(s *State) { bend(s, 2, func(i *Identity) { i.CreatedBy = "bob" }) },
		"uses":       func(s *State) { bendToken(s, 0, func(x *JoinToken) { x.Uses++ }) },
		"pattern":    func(s *State) { bendToken(s, 0, func(x *JoinToken) { x.NamePattern = "*" }) },
		"roots":      func(s *State) { s.trust.roots = [][]byte{{0x30, 1}, {0x30, 3}} },
		"pins":       func(s *State) { s.trust.pins = []PinReplica{{"n1", [][32]byte{hashed(61)}}, s.trust.pins[1]} },
	} {
		good, bad := withIdentities(t), withIdentities(t)
		damage(bad)
		for _, s := range []*State{good, bad} {
			if r := s.Apply(Entry{Ops: changes}, nil); r != Accepted {
				t.Fatalf("%s: %v", what, r)
			}
		}
		if good.Digest() == bad.Digest() {
			t.Errorf("damage of the %s was not detected", what)
		}
	}
}

func TestTheNumberOfIdentitiesIsLimited(t *testing.T) {
	t.Parallel()
	s := New()
	var ops []Op
	add := func(n int, op func(hash [32]byte, i int) Op) {
		for i := range n {
			ops = append(ops, op([32]byte{byte(i), byte(i >> 8), byte(i >> 16), 1}, i))
		}
	}
	create := func(hash [32]byte, i int) Op {
		return &CreateIdentity{Name: fmt.Sprintf("u%d", i), Grant: Grant{Role: RoleReader}, Credential: Credential{Kind: TokenCredential, Hash: hash}, CreatedMS: 1}
	}
	token := func(hash [32]byte, _ int) Op {
		return &CreateJoinToken{Purpose: JoinUser, Grant: Grant{Role: RoleReader}, Hash: hash, CreatedMS: 1}
	}
	pin := func(hash [32]byte, i int) Op { return &PinReplica{fmt.Sprintf("n%05d", i), [][32]byte{hash}} }
	add(maxIdentities, create)
	add(maxJoinTokens, token)
	if r := s.Apply(Entry{Ops: ops}, nil); r != Accepted {
		t.Fatal(r)
	}
	for i := range maxPins {
		s.trust.pins = append(s.trust.pins, *pin(hashed(1), i).(*PinReplica)) // one by one would copy them each time
	}
	for _, op := range []Op{create(hashed(1), maxIdentities), token(hashed(1), 0), pin(hashed(1), maxPins)} {
		if r := s.Apply(Entry{Ops: []Op{op}}, nil); r != LimitExceeded {
			t.Errorf("%T: got %v, want %v", op, r, LimitExceeded)
		}
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	sameState(t, "after a restore", restored(t, snapshotOf(t, s)), s)
}
