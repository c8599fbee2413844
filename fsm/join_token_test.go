package fsm

import (
	"fmt"
	"slices"
	"testing"
)

func TestAJoinTokenIsRefusedWithAReason(t *testing.T) {
	t.Parallel()
	change := func(f func(o *RedeemJoinToken)) *RedeemJoinToken {
		o := redeem("w2", 20)
		f(o)
		return o
	}
	for what, c := range map[string]struct {
		op   *RedeemJoinToken
		want Reason
	}{
		"unknown":           {change(func(o *RedeemJoinToken) { o.Token = 2 }), JoinTokenNotFound},
		"another secret":    {change(func(o *RedeemJoinToken) { o.SecretHash[5] ^= 1 }), JoinTokenNotFound},
		"expired":           {change(func(o *RedeemJoinToken) { o.AtMS = 5000 }), JoinTokenExpired},
		"another purpose":   {change(func(o *RedeemJoinToken) { o.Purpose = JoinCoordinator }), JoinTokenPurpose},
		"another name":      {change(func(o *RedeemJoinToken) { o.Name = "v2" }), JoinTokenName},
		"no name":           {change(func(o *RedeemJoinToken) { o.Name = "" }), Malformed},
		"no time":           {change(func(o *RedeemJoinToken) { o.AtMS = 0 }), Malformed},
		"a live name":       {change(func(o *RedeemJoinToken) { o.Name = "w1" }), NameTaken},
		"a used credential": {change(func(o *RedeemJoinToken) { o.Credential.Hash = hashed(1) }), CredentialInUse},
	} {
		refused(t, access(t), what, c.want, c.op)
	}
	w := access(t).do(&RevokeJoinToken{ID: 1, AtMS: 1200, By: "alice"})
	w.do(&RevokeJoinToken{ID: 1, AtMS: 1300, By: "bob"}) // changes nothing
	refused(t, w, "revoked", JoinTokenRevoked, redeem("w2", 20))
	refused(t, w, "revoking an unknown one", JoinTokenNotFound, &RevokeJoinToken{ID: 2, AtMS: 1})
	if x := w.s.JoinToken(1); x.RevokedMS != 1200 || x.RevokedBy != "alice" || x.EndMS() != 1200 {
		t.Errorf("got %+v", x)
	}
}

func TestTheLastUseOfAJoinTokenHasOneWinner(t *testing.T) {
	t.Parallel()
	w := access(t).do(redeem("w2", 20))
	if r := w.try(redeem("w3", 21), redeem("w4", 22)); r != JoinTokenUsedUp {
		t.Errorf("two callers for the last use: got %v", r)
	}
	if w.s.IdentityByName("w3", true) == nil || w.s.IdentityByName("w4", true) != nil {
		t.Error("want the first of them")
	}
	w.do(redeem("w3", 21)) // a repeated request
	if x := w.s.JoinToken(1); x.Used != 3 || x.EndMS() != 1000 {
		t.Errorf("got %+v", x)
	}
}

func TestAWorkerThatJoinsAgainKeepsItsKeyOrReplacesTheOldOne(t *testing.T) {
	t.Parallel()
	w := access(t).do(worker(1))
	same := redeem("w1", 2)
	same.Key = "lost"
	w.do(same)
	if x := w.s.JoinToken(1); x.Used != 1 || w.s.IdentityCount() != 3 {
		t.Errorf("joining again with the same key counts: got %+v", x)
	}
	other := redeem("w1", 20)
	refused(t, w, "with another key", NameTaken, other)
	other.Replace = true
	fx := new(Effects)
	if r := w.s.Apply(Entry{Ops: []Op{other}}, fx); r != Accepted || !slices.Equal(fx.RevokedWorkers, []WorkerID{1}) {
		t.Errorf("replacing: got %v, revoked workers %v", r, fx.RevokedWorkers)
	}
	if i := w.s.IdentityByName("w1", true); i.ID != 4 || !w.s.Identity(2).IsRevoked() || w.s.IdentityByHash(hashed(2)) != nil {
		t.Errorf("after the replacement: %+v", i)
	}
}

// A join string for readers must not take the place of an admin.
func TestOnlyAWorkerIsReplaced(t *testing.T) {
	t.Parallel()
	w := access(t).do(&CreateJoinToken{Purpose: JoinUser, Grant: Grant{Role: RoleReader}, Hash: hashed(50), CreatedMS: 1000})
	refused(t, w, "replacing a user", NameTaken, &RedeemJoinToken{
		Token: 2, SecretHash: hashed(50), Purpose: JoinUser, Name: "alice", Credential: Credential{Kind: TokenCredential, Hash: hashed(51)}, Replace: true, AtMS: 1000,
	})
}

func TestNamesMatchPatterns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "w", true},
		{"*", "w", true},
		{"w", "w", true},
		{"w", "w1", false},
		{"w1", "w", false},
		{"w*", "w", true},
		{"w*", "w12", true},
		{"w*", "v", false},
		{"*1", "w1", true},
		{"*1", "w12", false},
		{"a*b*c", "abc", true},
		{"a*b*c", "aXbYbZc", true},
		{"a*b*c", "acb", false},
		{"**", "x", true},
		{"a**", "a", true},
		{"*ab", "aab", true},
		{"*a*a", "a", false},
		{"gpu-*.eu", "gpu-17.eu", true},
		{"gpu-*.eu", "gpu-17.us", false},
	} {
		x := JoinToken{NamePattern: c.pattern}
		if got := x.MatchesName(c.name); got != c.want {
			t.Errorf("%q matches %q: got %v", c.name, c.pattern, got)
		}
	}
}

func TestRolesHaveNamesAndPurposes(t *testing.T) {
	t.Parallel()
	want := "role(0) admin/user operator/user submitter/user reader/user metrics/user worker/worker replica/coordinator role(8)/user purpose(0) purpose(4)"
	got := fmt.Sprint(Role(0))
	for r := RoleAdmin; r <= numRoles; r++ {
		got += fmt.Sprintf(" %v/%v", r, r.JoinPurpose())
	}
	if got += fmt.Sprintf(" %v %v", JoinPurpose(0), numJoinPurposes); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
