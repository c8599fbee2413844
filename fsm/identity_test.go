package fsm

import (
	"bytes"
	"slices"
	"testing"
)

// The histories of TestTheStateAgreesWithItsReferenceModel have few operations on
// identities. These have no others, so that they meet each other.
func TestIdentitiesAgreeWithTheirReferenceModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		g, s, w := newGenerator(seeded(seed)), New(), newModel()
		var forks []*still
		for n := range 250 {
			ops := []Op{g.identity(s)}
			now := int64(n + 1)
			before, digest := snapshotOf(t, s), s.Digest()
			fx := new(Effects)
			e := mustDecode(t, Encode(nil, Entry{NowMS: now, Ops: ops}))
			got, want := s.Apply(e, fx), w.entry(now, ops)
			if got.String() != want {
				t.Fatalf("seed %d, entry %d %s: %v, reference model says %s", seed, n, describe(ops), got, want)
			}
			if err := s.Check(); err != nil {
				t.Fatalf("seed %d, entry %d %s: %v", seed, n, describe(ops), err)
			}
			if diff := w.access.compare(s, fx); diff != "" {
				t.Fatalf("seed %d, entry %d %s: state and reference model differ:\n%s", seed, n, describe(ops), diff)
			}
			if got != Accepted && !bytes.Equal(identityFrames(before), identityFrames(snapshotOf(t, s))) {
				t.Fatalf("seed %d, entry %d %s: rejected, but changed the state", seed, n, describe(ops))
			}
			if s.Digest() == digest {
				t.Fatalf("seed %d, entry %d: the digest did not change", seed, n)
			}
			if n%50 == 0 {
				forks = append(forks, &still{s: s.Fork(), snapshot: snapshotOf(t, s)})
				again := restored(t, snapshotOf(t, s))
				sameState(t, "after a restore", again, s)
				s = again
			}
		}
		for _, f := range forks {
			if !bytes.Equal(snapshotOf(t, f.s), f.snapshot) {
				t.Fatalf("seed %d: a fork changed with another state", seed)
			}
		}
	}
}

// identityFrames returns the frames of a snapshot with identities, join tokens and trust.
func identityFrames(snapshot []byte) (frames []byte) {
	for rest := unframed(snapshot); len(rest) > 0; {
		n := 3 + int(rest[1]) + int(rest[2])<<8
		if kind := frameKind(rest[0]); kind >= frameTrust && kind <= frameJoinTokens {
			frames = append(frames, rest[:n]...)
		}
		rest = rest[n:]
	}
	return frames
}

// access is a world with an admin (1), a worker (2) with a token (1) for others, and a
// reader (3), made at 1000 ms.
func access(t *testing.T) *world {
	t.Helper()
	return newWorld(t).do(
		&CreateIdentity{Name: "alice", Grant: Grant{Role: RoleAdmin}, Credential: Credential{Kind: TokenCredential, Hash: hashed(1)}, CreatedBy: "socket", CreatedMS: 1000, Key: "a"},
		workerToken(),
		redeem("w1", 2),
		&CreateIdentity{Name: "bob", Grant: Grant{Role: RoleReader, Namespaces: []string{"etl"}}, Credential: Credential{Kind: TokenCredential, Hash: hashed(3), ExpiresMS: 2000}, CreatedBy: "alice", CreatedMS: 1000},
	)
}

func workerToken() *CreateJoinToken {
	return &CreateJoinToken{
		Purpose: JoinWorker, Grant: Grant{Role: RoleWorker, Namespaces: []string{AllNamespaces}, Labels: []Label{{"zone", "a"}}},
		NamePattern: "w*", Hash: hashed(100), Uses: 3, ExpiresMS: 5000, CreatedBy: "alice", CreatedMS: 1000, Key: "j",
	}
}

// redeem is a request of the worker with a name to join with the token of access, with a
// key of its own for each credential.
func redeem(name string, hash byte) *RedeemJoinToken {
	return &RedeemJoinToken{
		Token: 1, SecretHash: hashed(100), Purpose: JoinWorker, Name: name, Credential: Credential{Kind: KeyCredential, Hash: hashed(hash)},
		AtMS: 1000, Key: "r" + string(rune('a'+hash)),
	}
}

func TestAnIdentityIsFoundByNameCredentialAndKey(t *testing.T) {
	t.Parallel()
	s := access(t).s
	alice, w1 := s.Identity(1), s.Identity(2)
	if s.IdentityByName("alice", false) != alice || s.IdentityByName("alice", true) != nil || s.IdentityByHash(hashed(1)) != alice ||
		s.IdentityByKey(0, "a") != alice || s.IdentityByKey(1, "a") != nil || alice.CreatedBy != "socket" {
		t.Errorf("alice is %+v, or not found by what belongs to her", alice)
	}
	if s.IdentityByName("w1", true) != w1 || s.IdentityByHash(hashed(2)) != w1 || s.IdentityByKey(1, "rc") != w1 {
		t.Errorf("w1 is %+v, or not found by what belongs to it", w1)
	}
	if w1.Role != RoleWorker || !slices.Equal(w1.Namespaces, []string{AllNamespaces}) || !slices.Equal(w1.Labels, []Label{{"zone", "a"}}) || w1.JoinToken != 1 || w1.CreatedBy != "alice" {
		t.Errorf("w1 is %+v, want what its join token grants", w1)
	}
	if c := w1.Credential(hashed(2)); c == nil || c.Kind != KeyCredential || c.CreatedMS != 1000 || w1.Credential(hashed(1)) != nil {
		t.Errorf("w1 has the credential %+v", c)
	}
	if x := s.JoinToken(1); x.Used != 1 || x.LastUsedMS != 1000 || s.JoinTokenByKey("j") != x {
		t.Errorf("the join token is %+v", x)
	}
	var ids []IdentityID
	for i := range s.IdentitiesAfter(1) {
		ids = append(ids, i.ID)
	}
	if !slices.Equal(ids, []IdentityID{2, 3}) || s.IdentityCount() != 3 || s.JoinTokenCount() != 1 {
		t.Errorf("after the first, got %v of %d identities", ids, s.IdentityCount())
	}
}

func TestARepeatedRequestHasOneIdentity(t *testing.T) {
	t.Parallel()
	w := access(t)
	again := &CreateIdentity{Name: "alice", Grant: Grant{Role: RoleAdmin}, Credential: Credential{Kind: TokenCredential, Hash: hashed(1)}, CreatedBy: "socket", CreatedMS: 1500, Key: "a"}
	w.do(again)
	if w.s.IdentityCount() != 3 {
		t.Errorf("got %d identities after a repeated request", w.s.IdentityCount())
	}
	for what, change := range map[string]func(o *CreateIdentity){
		"name":       func(o *CreateIdentity) { o.Name = "carol" },
		"role":       func(o *CreateIdentity) { o.Role = RoleReader },
		"namespaces": func(o *CreateIdentity) { o.Namespaces = []string{"etl"} },
		"labels":     func(o *CreateIdentity) { o.Labels = []Label{{"a", "b"}} },
		"kind":       func(o *CreateIdentity) { o.Credential.Kind = KeyCredential },
		"hash":       func(o *CreateIdentity) { o.Credential.Hash = hashed(9) },
		"lifetime":   func(o *CreateIdentity) { o.Credential.ExpiresMS = 9000 },
	} {
		o := *again
		change(&o)
		refused(t, w, "another "+what, KeyConflict, &o)
	}
	later := redeem("w1", 2)
	later.AtMS = 9000 // the token has expired, and the answer to the first request was lost
	w.do(later, workerToken())
	if x := w.s.JoinToken(1); x.Used != 1 || w.s.JoinTokenCount() != 1 {
		t.Errorf("a repeated request counts: got %+v", x)
	}
	later.Name = "w2"
	refused(t, w, "another name with the key of a redemption", KeyConflict, later)
	other := workerToken()
	other.Uses++
	refused(t, w, "another join token with the same key", KeyConflict, other)
}

func TestALiveNameAndACredentialBelongToOneIdentity(t *testing.T) {
	t.Parallel()
	w := access(t)
	create := func(name string, role Role, hash byte, at int64) *CreateIdentity {
		return &CreateIdentity{Name: name, Grant: Grant{Role: role}, Credential: Credential{Kind: TokenCredential, Hash: hashed(hash)}, CreatedBy: "alice", CreatedMS: at}
	}
	refused(t, w, "a live name", NameTaken, create("alice", RoleReader, 9, 1500))
	refused(t, w, "a credential of a worker", CredentialInUse, create("carol", RoleReader, 2, 1500))
	refused(t, w, "a credential that has expired", CredentialInUse, create("carol", RoleReader, 3, 2500))
	w.do(create("w1", RoleReader, 9, 1500)) // users may have the names of workers
	refused(t, w, "a name whose credential is valid", NameTaken, create("bob", RoleReader, 8, 1999))
	w.do(create("bob", RoleReader, 3, 2000)) // now it has expired
	if old := w.s.Identity(3); !old.IsRevoked() || old.RevokedMS != 2000 || w.s.IdentityByHash(hashed(3)).ID != 5 {
		t.Errorf("the expired bob is %+v", old)
	}
}

func TestContentsOfIdentitiesOutOfRangeAreRefused(t *testing.T) {
	t.Parallel()
	w := access(t)
	long := string(bytes.Repeat([]byte{'x'}, maxIdentityText+1))
	many := make([]Label, maxGrantLabels+1)
	for i := range many {
		many[i] = Label{"k", string(rune('A' + i))}
	}
	for what, change := range map[string]func(o *CreateIdentity){
		"no name":              func(o *CreateIdentity) { o.Name = "" },
		"a space":              func(o *CreateIdentity) { o.Name = "a b" },
		"a long name":          func(o *CreateIdentity) { o.Name = long[:64] },
		"role 0":               func(o *CreateIdentity) { o.Role = 0 },
		"role 8":               func(o *CreateIdentity) { o.Role = 8 },
		"unsorted namespaces":  func(o *CreateIdentity) { o.Namespaces = []string{"b", "a"} },
		"duplicate namespaces": func(o *CreateIdentity) { o.Namespaces = []string{"a", "a"} },
		"all and one":          func(o *CreateIdentity) { o.Namespaces = []string{"*", "a"} },
		"an empty namespace":   func(o *CreateIdentity) { o.Namespaces = []string{""} },
		"unsorted labels":      func(o *CreateIdentity) { o.Labels = []Label{{"b", ""}, {"a", ""}} },
		"duplicate labels":     func(o *CreateIdentity) { o.Labels = []Label{{"a", "b"}, {"a", "b"}} },
		"an empty label":       func(o *CreateIdentity) { o.Labels = []Label{{"", "b"}} },
		"many labels":          func(o *CreateIdentity) { o.Labels = many },
		"long labels":          func(o *CreateIdentity) { o.Labels = []Label{{"a", string(make([]byte, maxGrantText))}} },
		"kind 0":               func(o *CreateIdentity) { o.Credential.Kind = 0 },
		"kind 3":               func(o *CreateIdentity) { o.Credential.Kind = 3 },
		"no hash":              func(o *CreateIdentity) { o.Credential.Hash = [32]byte{} },
		"expired at once":      func(o *CreateIdentity) { o.Credential.ExpiresMS = o.CreatedMS },
		"no time":              func(o *CreateIdentity) { o.CreatedMS = 0 },
		"long creator":         func(o *CreateIdentity) { o.CreatedBy = long },
		"long key":             func(o *CreateIdentity) { o.Key = long[:maxRequestKey+1] },
	} {
		o := &CreateIdentity{Name: "carol", Grant: Grant{Role: RoleReader}, Credential: Credential{Kind: TokenCredential, Hash: hashed(9)}, CreatedMS: 1000}
		change(o)
		refused(t, w, what, Malformed, o)
	}
	refused(t, w, "revoking none", Malformed, &RevokeIdentity{AtMS: 1})
	refused(t, w, "revoking too many", Malformed, &RevokeIdentity{AtMS: 1, IDs: make([]IdentityID, maxRevoked+1)})
	refused(t, w, "revoking with a long name", Malformed, &RevokeIdentity{AtMS: 1, IDs: []IdentityID{1}, By: long})
	refused(t, w, "revoking a join token with a long name", Malformed, &RevokeJoinToken{AtMS: 1, ID: 1, By: long})
	refused(t, w, "adding at no time", Malformed, &AddCredential{ID: 1, Credential: Credential{Kind: 1, Hash: hashed(9)}})
	refused(t, w, "forgetting too many", Malformed, &ForgetIdentities{BeforeMS: 1, Max: maxForgotten + 1})
	for what, change := range map[string]func(o *CreateJoinToken){
		"role and purpose": func(o *CreateJoinToken) { o.Purpose = JoinUser },
		"purpose 0":        func(o *CreateJoinToken) { o.Purpose = 0 },
		"a pattern":        func(o *CreateJoinToken) { o.NamePattern = "w?" },
		"a long pattern":   func(o *CreateJoinToken) { o.NamePattern = long[:64] },
		"no hash":          func(o *CreateJoinToken) { o.Hash = [32]byte{} },
		"expired at once":  func(o *CreateJoinToken) { o.ExpiresMS = 1000 },
		"no time":          func(o *CreateJoinToken) { o.CreatedMS = 0 },
		"long creator":     func(o *CreateJoinToken) { o.CreatedBy = long },
	} {
		o := workerToken()
		o.Key = "new"
		change(o)
		refused(t, w, "join token: "+what, Malformed, o)
	}
}

func TestACredentialIsRotated(t *testing.T) {
	t.Parallel()
	w := access(t)
	add := func(id IdentityID, hash byte, at, others int64) *AddCredential {
		return &AddCredential{ID: id, Credential: Credential{Kind: TokenCredential, Hash: hashed(hash), ExpiresMS: 8000}, CreatedMS: at, OthersExpireMS: others}
	}
	w.do(add(1, 9, 1500, 1600))
	w.do(add(1, 9, 1501, 1700)) // a repeated request
	alice := w.s.IdentityByHash(hashed(9))
	if alice == nil || alice.ID != 1 || alice.Credentials[0].ExpiresMS != 1600 || alice.Credentials[1].CreatedMS != 1500 || alice.EndMS() != 8000 {
		t.Fatalf("after the rotation: %+v", alice)
	}
	refused(t, w, "a third one", LimitExceeded, add(1, 10, 1599, 0))
	refused(t, w, "one of another identity", CredentialInUse, add(1, 2, 1599, 0))
	refused(t, w, "to an unknown identity", IdentityNotFound, add(7, 10, 1599, 0))
	w.do(add(1, 10, 1600, 9000)) // the first has expired, and the second is not extended
	if w.s.IdentityByHash(hashed(1)) != nil || w.s.Identity(1).Credentials[0].ExpiresMS != 8000 {
		t.Errorf("after the second rotation: %+v", w.s.Identity(1))
	}
	w.do(&DropCredential{ID: 1, Hash: hashed(9)})
	if w.s.IdentityByHash(hashed(9)) != nil || w.s.IdentityByHash(hashed(10)) != w.s.Identity(1) {
		t.Errorf("after the drop: %+v", w.s.Identity(1))
	}
	refused(t, w, "dropping it again", AlreadyEnded, &DropCredential{ID: 1, Hash: hashed(9)})
	refused(t, w, "dropping the last one", WrongState, &DropCredential{ID: 1, Hash: hashed(10)})
	refused(t, w, "of an unknown identity", IdentityNotFound, &DropCredential{ID: 7})
	w.do(&RevokeIdentity{IDs: []IdentityID{1}, AtMS: 1700})
	refused(t, w, "to a revoked identity", IdentityRevoked, add(1, 11, 1800, 0))
	refused(t, w, "of a revoked identity", IdentityRevoked, &DropCredential{ID: 1, Hash: hashed(10)})
}

func TestARevokedIdentityStaysAndItsCredentialsDoNotCount(t *testing.T) {
	t.Parallel()
	w := access(t).do(worker(1))
	fx := new(Effects)
	refused(t, w, "with an unknown one", IdentityNotFound, &RevokeIdentity{IDs: []IdentityID{2, 3, 9}, AtMS: 1500})
	w.s.Apply(Entry{Ops: []Op{&RevokeIdentity{IDs: []IdentityID{2, 3}, AtMS: 1500, By: "alice"}}}, fx)
	w.s.Apply(Entry{Ops: []Op{&RevokeIdentity{IDs: []IdentityID{2}, AtMS: 1600, By: "bob"}}}, fx) // changes nothing
	if !slices.Equal(fx.RevokedWorkers, []WorkerID{1}) {
		t.Errorf("got the revoked workers %v, want 1 once", fx.RevokedWorkers)
	}
	i := w.s.Identity(2)
	if i.RevokedMS != 1500 || i.RevokedBy != "alice" || i.IsLive(1500) || w.s.IdentityByHash(hashed(2)) != nil || w.s.IdentityByName("w1", true) != nil {
		t.Errorf("the revoked worker is %+v, or is found", i)
	}
	rejoin := redeem("w1", 2)
	rejoin.Key = "again"
	w.do(rejoin) // a revoked identity does not come back; the operator gave out a new join string
	if i := w.s.IdentityByHash(hashed(2)); i == nil || i.ID != 4 {
		t.Errorf("after a rejoin: %+v", i)
	}
}

// The logs, results and at-most-once attempts of a worker are found by its number.
func TestAWorkerThatTakesOverANameGetsANumberOfItsOwn(t *testing.T) {
	t.Parallel()
	replace := redeem("w1", 20)
	replace.Replace = true
	for name, ops := range map[string][]Op{
		"replaced": {replace},
		"rejoined": {&RevokeIdentity{IDs: []IdentityID{2}, AtMS: 1500}, redeem("w1", 20)},
	} {
		w := access(t).do(worker(1), worker(2)).do(ops...)
		if x := w.s.WorkerByName("w1"); x != nil {
			t.Errorf("%s: w1 is still %+v", name, x)
		}
		if x := w.s.Worker(1); x.Name != "w1#1" || w.s.WorkerByName("w1#1") != x || x.State != WorkerUp {
			t.Errorf("%s: the old worker is %+v", name, x)
		}
		next := worker(3)
		next.Name, next.Incarnation = "w1", "i2"
		old := *next
		old.ID = 1
		refused(t, w, name+": the old number", OutOfOrder, &old)
		w.do(next)
		if x := w.s.WorkerByName("w1"); x.ID != 3 || w.s.Worker(1).Incarnation != "i1" {
			t.Errorf("%s: the new worker is %+v", name, x)
		}
		if err := w.s.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestARetiredNameThatIsTakenGetsLonger(t *testing.T) {
	t.Parallel()
	impostor := worker(2)
	impostor.Name = "w1#1"
	w := access(t).do(worker(1), impostor, &RevokeIdentity{IDs: []IdentityID{2}, AtMS: 1500})
	if x := w.s.WorkerByName("w1#1#"); x == nil || x.ID != 1 || w.s.WorkerByName("w1#1").ID != 2 {
		t.Errorf("the revoked worker is %+v", w.s.Worker(1))
	}
}

func TestEndedIdentitiesAndJoinTokensAreForgotten(t *testing.T) {
	t.Parallel()
	w := access(t)
	w.do(&RevokeIdentity{IDs: []IdentityID{2}, AtMS: 1500}, &RevokeJoinToken{ID: 1, AtMS: 1500})
	refused(t, w, "too early", AlreadyEnded, &ForgetIdentities{BeforeMS: 1500, Max: 9})
	if w.s.HasEndedIdentities(1500) || !w.s.HasEndedIdentities(1501) {
		t.Error("the ended ones are not found")
	}
	w.do(&ForgetIdentities{BeforeMS: 2001, Max: 1})
	if w.s.Identity(2) != nil || w.s.Identity(3) == nil || w.s.JoinToken(1) == nil {
		t.Error("more than one was forgotten, or another one")
	}
	w.do(&ForgetIdentities{BeforeMS: 2001, Max: 9})
	if w.s.Identity(3) != nil || w.s.IdentityByHash(hashed(3)) != nil || w.s.JoinToken(1) != nil || w.s.JoinTokenByKey("j") != nil || w.s.IdentityByKey(1, "rc") != nil {
		t.Error("the others were not forgotten")
	}
	w.do(workerToken())
	if w.s.JoinToken(2) == nil || w.s.Identity(1) == nil {
		t.Error("a number was reused, or a live identity was forgotten")
	}
}
