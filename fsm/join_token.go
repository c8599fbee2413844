package fsm

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"iter"
	"slices"
)

// JoinTokenID is the number of a join token, from 1. It is never reused.
type JoinTokenID uint64

// JoinPurpose is who can join with a token.
type JoinPurpose uint8

// The purposes. The zero value is never valid.
const (
	JoinCoordinator JoinPurpose = iota + 1
	JoinWorker
	JoinUser
	numJoinPurposes
)

var joinPurposeNames = [numJoinPurposes]string{"", "coordinator", "worker", "user"}

// String is the name of the purpose as users see it.
func (p JoinPurpose) String() string {
	if p == 0 || p >= numJoinPurposes {
		return fmt.Sprintf("purpose(%d)", uint8(p))
	}
	return joinPurposeNames[p]
}

// JoinPurpose is the purpose of join tokens that grant the role.
func (r Role) JoinPurpose() JoinPurpose {
	switch r {
	case RoleReplica:
		return JoinCoordinator
	case RoleWorker:
		return JoinWorker
	case RoleAdmin, RoleOperator, RoleSubmitter, RoleReader, RoleMetrics, numRoles:
		return JoinUser
	default:
		return JoinUser
	}
}

// JoinToken lets its holder create identities. Values never change once they are in the
// state.
type JoinToken struct {
	ID      JoinTokenID
	Purpose JoinPurpose
	Grant   // of the identities
	// NamePattern is what their names must match; * stands for any characters. Empty: any
	// name.
	NamePattern string
	Hash        [sha256Len]byte // SHA-256 of the secret
	ExpiresMS   int64           // the first moment at which it is invalid; 0 = never
	Uses        uint32          // how many identities it may create; 0 = unlimited
	Used        uint64          // how many it has created
	LastUsedMS  int64           // 0 = never
	CreatedBy   string          // name of the identity that asked for it
	CreatedMS   int64
	Key         string   // of the request that created it; empty: none
	Digest      [16]byte // of that request
	RevokedMS   int64    // 0 = not revoked
	RevokedBy   string
}

// IsRevoked reports whether the token was revoked.
func (x *JoinToken) IsRevoked() bool { return x.RevokedMS != 0 }

// IsExpired reports whether the token is invalid at a time because of its age.
func (x *JoinToken) IsExpired(atMS int64) bool { return x.ExpiresMS != 0 && x.ExpiresMS <= atMS }

// IsUsedUp reports whether the token has created all identities that it may.
func (x *JoinToken) IsUsedUp() bool { return x.Uses != 0 && x.Used >= uint64(x.Uses) }

// MatchesName reports whether an identity of the token may have a name.
func (x *JoinToken) MatchesName(name string) bool {
	return x.NamePattern == "" || matches(x.NamePattern, name)
}

// matches reports whether a name matches a pattern in which * stands for any characters.
// After a mismatch, the last * takes one character more: no earlier one could help.
func matches(pattern, name string) bool {
	p, n, star, from := 0, 0, -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, n
			p++
		case p < len(pattern) && pattern[p] == name[n]:
			p++
			n++
		case star >= 0:
			from++
			p, n = star+1, from
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// EndMS is when the token was revoked or used up, or when it expires, whichever comes
// first; 0 = never.
func (x *JoinToken) EndMS() int64 {
	end := x.ExpiresMS
	if x.IsUsedUp() && (end == 0 || x.LastUsedMS < end) {
		end = x.LastUsedMS
	}
	if x.IsRevoked() && (end == 0 || x.RevokedMS < end) {
		end = x.RevokedMS
	}
	return end
}

func (x *JoinToken) malformed() bool {
	for i := range len(x.NamePattern) {
		if c := x.NamePattern[i]; c != '*' && !isNameByte(c) {
			return true
		}
	}
	return x.Purpose == 0 || x.Purpose >= numJoinPurposes || x.Grant.malformed() || x.Role.JoinPurpose() != x.Purpose ||
		len(x.NamePattern) > maxIdentityName || x.Hash == [sha256Len]byte{} ||
		x.CreatedMS <= 0 || x.ExpiresMS != 0 && x.ExpiresMS <= x.CreatedMS || x.RevokedMS < 0 || !x.IsRevoked() && x.RevokedBy != "" ||
		x.Uses != 0 && x.Used > uint64(x.Uses) || x.Used == 0 && x.LastUsedMS != 0 || x.Used != 0 && x.LastUsedMS <= 0 ||
		len(x.CreatedBy) > maxIdentityText || len(x.RevokedBy) > maxIdentityText || len(x.Key) > maxRequestKey
}

// request codes what a request to create the token has of it, except for its times.
func (x *JoinToken) request(c *coder) {
	number(c, &x.Purpose)
	x.Grant.fields(c)
	c.str(&x.NamePattern)
	c.hash(&x.Hash)
	number(c, &x.Uses)
}

func (x *JoinToken) fields(c *coder) {
	number(c, &x.ID)
	x.request(c)
	c.i64(&x.ExpiresMS)
	number(c, &x.Used)
	c.i64(&x.LastUsedMS)
	c.str(&x.CreatedBy)
	c.i64(&x.CreatedMS)
	c.str(&x.Key)
	c.digest(&x.Digest)
	c.i64(&x.RevokedMS)
	c.str(&x.RevokedBy)
}

// requestDigest is the digest of a request to create a join token: see that of an
// identity.
func (x *JoinToken) requestDigest() [16]byte {
	var e encoder
	x.request(&coder{e: &e})
	if x.ExpiresMS != 0 {
		e.i64(x.ExpiresMS - x.CreatedMS)
	}
	sum := sha256.Sum256(e.b)
	return [16]byte(sum[:16])
}

// joinTokens are all join tokens.
type joinTokens struct {
	own  *ownership
	list []*JoinToken        // ascending by number
	keys cowMap[JoinTokenID] // by the idempotency keys of the requests
	next JoinTokenID         // the number of the next new token
}

func (t *joinTokens) at(id JoinTokenID) (at int, found bool) {
	return slices.BinarySearchFunc(t.list, id, func(x *JoinToken, id JoinTokenID) int { return cmp.Compare(x.ID, id) })
}

// write returns the list for changing.
func (t *joinTokens) write(own *ownership) []*JoinToken {
	if t.own != own {
		t.list, t.own = slices.Clone(t.list), own
	}
	return t.list
}

// JoinToken returns a join token, or nil if it is unknown. Shared: never change it.
func (t *joinTokens) JoinToken(id JoinTokenID) *JoinToken {
	at, found := t.at(id)
	if !found {
		return nil
	}
	return t.list[at]
}

// JoinTokenByKey returns the join token that a request with an idempotency key has
// created, or nil.
func (t *joinTokens) JoinTokenByKey(key string) *JoinToken {
	id, ok := t.keys.get(key)
	if !ok {
		return nil
	}
	return t.JoinToken(id)
}

// JoinTokens iterates over the join tokens by number, ended ones too.
func (t *joinTokens) JoinTokens() iter.Seq[*JoinToken] { return t.JoinTokensAfter(0) }

// JoinTokensAfter iterates over the join tokens with higher numbers.
func (t *joinTokens) JoinTokensAfter(id JoinTokenID) iter.Seq[*JoinToken] {
	at, found := t.at(id)
	if found {
		at++
	}
	return slices.Values(t.list[at:])
}

// NextJoinToken is the number of the next new join token.
func (t *joinTokens) NextJoinToken() JoinTokenID { return t.next }

// JoinTokenCount is the number of join tokens, ended ones too; at most 10,000.
func (t *joinTokens) JoinTokenCount() int { return len(t.list) }

func (d *digester) mixJoinToken(x *JoinToken) {
	var e encoder
	x.fields(&coder{e: &e})
	d.mixBytes(e.b)
}

func (f *frameWriter) joinTokens(s *State) {
	for part := range slices.Chunk(s.joinTokens.list, identitiesPerFrame) {
		list(&f.c, &part, func(x **JoinToken) { (*x).fields(&f.c) })
		f.frame(frameJoinTokens)
	}
}

func (f *frameReader) joinTokens(d *decoder) {
	var part []*JoinToken
	c, t := coder{d: d}, &f.s.joinTokens
	list(&c, &part, func(x **JoinToken) {
		*x = new(JoinToken)
		(*x).fields(&c)
	})
	if d.err != nil {
		return
	}
	t.own = f.s.own
	t.list = append(t.list, part...)
	for _, x := range part {
		if x.Key != "" {
			t.keys.set(f.s.own, x.Key, x.ID)
		}
	}
}

// check checks each token, and that it is found by its key.
func (t *joinTokens) check() error {
	last, keys := JoinTokenID(0), 0
	for _, x := range t.list {
		switch {
		case x.ID <= last || x.ID >= t.next:
			return fmt.Errorf("join token %d follows join token %d, next is %d", x.ID, last, t.next)
		case x.malformed():
			return fmt.Errorf("join token %d is malformed", x.ID)
		case x.Key != "" && t.JoinTokenByKey(x.Key) != x:
			return fmt.Errorf("join token %d is not found by its key %q", x.ID, x.Key)
		}
		last = x.ID
		if x.Key != "" {
			keys++
		}
	}
	if len(t.list) > maxJoinTokens || t.keys.n != keys {
		return fmt.Errorf("%d join tokens have %d keys, counted %d", len(t.list), t.keys.n, keys)
	}
	return nil
}
