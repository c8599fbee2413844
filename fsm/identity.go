package fsm

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// IdentityID is the number of an identity, from 1. It is never reused.
type IdentityID uint64

// Role is what an identity may do. The state machine only checks its range; package
// auth knows what each role allows.
type Role uint8

// The roles. The zero value is never valid.
const (
	RoleAdmin     Role = iota + 1 // everything
	RoleOperator                  // the cluster and all jobs
	RoleSubmitter                 // submits and changes jobs of its namespaces
	RoleReader                    // reads jobs of its namespaces
	RoleMetrics                   // reads metrics
	RoleWorker                    // runs attempts
	RoleReplica                   // a coordinator
	numRoles
)

var roleNames = [numRoles]string{"", "admin", "operator", "submitter", "reader", "metrics", "worker", "replica"}

// String is the name of the role as users see it.
func (r Role) String() string {
	if r == 0 || r >= numRoles {
		return fmt.Sprintf("role(%d)", uint8(r))
	}
	return roleNames[r]
}

// AllNamespaces, as the only namespace of an identity, stands for all of them.
const AllNamespaces = "*"

// Grant is what an identity may do, and where.
type Grant struct {
	Role Role
	// Namespaces are those of the identity, ascending, or AllNamespaces alone.
	Namespaces []string
	// Labels are given to the worker, whatever it announces: ascending by key and value.
	Labels []Label
}

func (g *Grant) fields(c *coder) {
	number(c, &g.Role)
	list(c, &g.Namespaces, c.str)
	c.labels(&g.Labels)
}

func (g *Grant) equal(other *Grant) bool {
	return g.Role == other.Role && slices.Equal(g.Namespaces, other.Namespaces) && slices.Equal(g.Labels, other.Labels)
}

// malformed reports whether the grant is out of range, unsorted or too long.
func (g *Grant) malformed() bool {
	if g.Role == 0 || g.Role >= numRoles || len(g.Namespaces) > maxNamespaces || len(g.Labels) > maxGrantLabels {
		return true
	}
	size := 0
	for i, ns := range g.Namespaces {
		all := ns == AllNamespaces && len(g.Namespaces) == 1
		if !all && !isName(ns) || i > 0 && g.Namespaces[i-1] >= ns {
			return true
		}
		size += len(ns)
	}
	for i, l := range g.Labels {
		if l.Key == "" || i > 0 && compareLabels(g.Labels[i-1], l) >= 0 {
			return true
		}
		size += len(l.Key) + len(l.Value)
	}
	return size > maxGrantText
}

func compareLabels(a, b Label) int {
	return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Value, b.Value))
}

// isName reports whether a name has 1 to 63 of the characters A-Z a-z 0-9 . _ -
func isName(name string) bool {
	if name == "" || len(name) > maxIdentityName {
		return false
	}
	for i := range len(name) {
		if !isNameByte(name[i]) {
			return false
		}
	}
	return true
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}

// CredentialKind is how the holder of a credential proves that it has it.
type CredentialKind uint8

// The kinds of credentials. The zero value is never valid.
const (
	TokenCredential CredentialKind = iota + 1 // a secret that is sent
	KeyCredential                             // the private key of a TLS connection
	numCredentialKinds
)

// Credential is one way in which an identity is recognized. The state has no secrets.
type Credential struct {
	Kind CredentialKind
	// Hash is the SHA-256 of the token's secret, or of the public key.
	Hash      [sha256Len]byte
	CreatedMS int64
	ExpiresMS int64 // the first moment at which it is invalid; 0 = never
}

// IsExpired reports whether the credential is invalid at a time because of its age.
func (c *Credential) IsExpired(atMS int64) bool { return c.ExpiresMS != 0 && c.ExpiresMS <= atMS }

// lifetime is how long the credential is valid, in ms; 0 = forever. Unlike the times, it
// is the same when a request is repeated.
func (c *Credential) lifetime() int64 {
	if c.ExpiresMS == 0 {
		return 0
	}
	return c.ExpiresMS - c.CreatedMS
}

func (c *Credential) malformed() bool {
	return c.Kind == 0 || c.Kind >= numCredentialKinds || c.Hash == [sha256Len]byte{} ||
		c.CreatedMS <= 0 || c.ExpiresMS != 0 && c.ExpiresMS <= c.CreatedMS
}

// fields codes what an operation has of a credential: all but the time of its creation,
// which is the operation's.
func (c *Credential) fields(x *coder) {
	number(x, &c.Kind)
	x.hash(&c.Hash)
	x.i64(&c.ExpiresMS)
}

func (c *Credential) snapshot(x *coder) {
	c.fields(x)
	x.i64(&c.CreatedMS)
}

// Identity is a user, a program, a worker or a coordinator. Values never change once
// they are in the state.
type Identity struct {
	ID   IdentityID
	Name string // 1 to 63 of A-Z a-z 0-9 . _ -
	Grant
	Credentials []Credential // 1 or 2, the oldest first
	CreatedBy   string       // name of the identity that asked for it, or for its join token
	CreatedMS   int64
	Key         string      // of the request that created it; empty: none
	Digest      [16]byte    // of that request
	JoinToken   JoinTokenID // that it was created with; 0 = none
	RevokedMS   int64       // 0 = not revoked
	RevokedBy   string
}

// IsRevoked reports whether the identity was revoked. Its credentials don't count.
func (i *Identity) IsRevoked() bool { return i.RevokedMS != 0 }

// IsLive reports whether the identity is not revoked and has a credential that is valid
// at a time.
func (i *Identity) IsLive(atMS int64) bool {
	return !i.IsRevoked() && slices.ContainsFunc(i.Credentials, func(c Credential) bool { return !c.IsExpired(atMS) })
}

// Credential returns the identity's credential with a hash; nil if it has no such
// credential. The caller checks whether it has expired.
func (i *Identity) Credential(hash [sha256Len]byte) *Credential {
	at := slices.IndexFunc(i.Credentials, func(c Credential) bool { return c.Hash == hash })
	if at < 0 {
		return nil
	}
	return &i.Credentials[at]
}

// EndMS is when the identity was revoked, or when its last credential expires; 0 = never.
func (i *Identity) EndMS() int64 {
	if i.IsRevoked() {
		return i.RevokedMS
	}
	last := int64(0)
	for _, c := range i.Credentials {
		if c.ExpiresMS == 0 {
			return 0
		}
		last = max(last, c.ExpiresMS)
	}
	return last
}

func (i *Identity) malformed() bool {
	if !isName(i.Name) || i.Grant.malformed() || i.CreatedMS <= 0 || i.RevokedMS < 0 ||
		len(i.CreatedBy) > maxIdentityText || len(i.RevokedBy) > maxIdentityText || len(i.Key) > maxRequestKey {
		return true
	}
	if n := len(i.Credentials); n == 0 || n > maxCredentials || n == 2 && i.Credentials[0].Hash == i.Credentials[1].Hash {
		return true
	}
	return !i.IsRevoked() && i.RevokedBy != "" ||
		slices.ContainsFunc(i.Credentials, func(c Credential) bool { return c.malformed() })
}

func (i *Identity) fields(c *coder) {
	number(c, &i.ID)
	c.str(&i.Name)
	i.Grant.fields(c)
	list(c, &i.Credentials, func(x *Credential) { x.snapshot(c) })
	c.str(&i.CreatedBy)
	c.i64(&i.CreatedMS)
	c.str(&i.Key)
	c.digest(&i.Digest)
	number(c, &i.JoinToken)
	c.i64(&i.RevokedMS)
	c.str(&i.RevokedBy)
}

// requestDigest is the digest of a request to create an identity: equal requests have
// equal ones. The times differ when a request is repeated, and are not part of it.
func (i *Identity) requestDigest() [16]byte {
	var e encoder
	c := coder{e: &e}
	number(&c, &i.JoinToken)
	c.str(&i.Name)
	if i.JoinToken == 0 { // else the grant is the token's
		i.Grant.fields(&c)
	}
	number(&c, &i.Credentials[0].Kind)
	c.hash(&i.Credentials[0].Hash)
	e.i64(i.Credentials[0].lifetime())
	sum := sha256.Sum256(e.b)
	return [16]byte(sum[:16])
}

// identities are all identities. Those that are not revoked are found by their names and
// by the hashes of their credentials.
type identities struct {
	own    *ownership
	list   []*Identity        // ascending by number
	names  cowMap[IdentityID] // by nameKey
	hashes cowMap[IdentityID] // by hash
	keys   cowMap[IdentityID] // by requestKey, also of revoked ones
	next   IdentityID         // the number of the next new identity
}

// nameKey is the key of a name. Workers and all others may have the same names: a worker
// is named for its host, which may have the name of a user.
func nameKey(name string, worker bool) string {
	if worker {
		return "w" + name
	}
	return "o" + name
}

func (i *Identity) nameKey() string { return nameKey(i.Name, i.Role == RoleWorker) }

// requestKey is the key of a request to create an identity. Holders of a join token and
// those who create identities directly don't share keys: neither can find out, or block,
// a key of the other.
func requestKey(token JoinTokenID, key string) string { return fmt.Sprintf("%d %s", token, key) }

func (t *identities) at(id IdentityID) (at int, found bool) {
	return slices.BinarySearchFunc(t.list, id, func(i *Identity, id IdentityID) int { return cmp.Compare(i.ID, id) })
}

// find returns the identity with an entry in one of the maps; nil if it is unknown.
func (t *identities) find(m *cowMap[IdentityID], key string) *Identity {
	id, ok := m.get(key)
	if !ok {
		return nil
	}
	return t.Identity(id)
}

// write returns the list for changing.
func (t *identities) write(own *ownership) []*Identity {
	if t.own != own {
		t.list, t.own = slices.Clone(t.list), own
	}
	return t.list
}

// index adds what the identity is found by.
func (t *identities) index(own *ownership, i *Identity) {
	if i.Key != "" {
		t.keys.set(own, requestKey(i.JoinToken, i.Key), i.ID)
	}
	if i.IsRevoked() {
		return
	}
	t.names.set(own, i.nameKey(), i.ID)
	for _, c := range i.Credentials {
		t.hashes.set(own, string(c.Hash[:]), i.ID)
	}
}

// unindex removes what the identity, which is not revoked, is found by, except its key.
func (t *identities) unindex(own *ownership, i *Identity) {
	t.names.delete(own, i.nameKey())
	for _, c := range i.Credentials {
		t.hashes.delete(own, string(c.Hash[:]))
	}
}

// Identity returns an identity, or nil if it is unknown. Shared: never change it.
func (t *identities) Identity(id IdentityID) *Identity {
	at, found := t.at(id)
	if !found {
		return nil
	}
	return t.list[at]
}

// IdentityByName returns the identity with a name that is not revoked, or nil: a worker,
// or one with another role. Its credentials may have expired.
func (t *identities) IdentityByName(name string, worker bool) *Identity {
	return t.find(&t.names, nameKey(name, worker))
}

// IdentityByHash returns the identity that is not revoked and has a credential with a
// hash, or nil. The caller checks whether the credential has expired.
func (t *identities) IdentityByHash(hash [sha256Len]byte) *Identity {
	return t.find(&t.hashes, string(hash[:]))
}

// IdentityByKey returns the identity that a request with an idempotency key has created,
// or nil. token is that of the request; 0 for CreateIdentity. It may be revoked since.
func (t *identities) IdentityByKey(token JoinTokenID, key string) *Identity {
	return t.find(&t.keys, requestKey(token, key))
}

// Identities iterates over the identities by number, revoked ones too.
func (t *identities) Identities() iter.Seq[*Identity] { return t.IdentitiesAfter(0) }

// IdentitiesAfter iterates over the identities with higher numbers.
func (t *identities) IdentitiesAfter(id IdentityID) iter.Seq[*Identity] {
	at, found := t.at(id)
	if found {
		at++
	}
	return slices.Values(t.list[at:])
}

// IdentityCount is the number of identities, revoked ones too; at most 100,000.
func (t *identities) IdentityCount() int { return len(t.list) }

// IdentitiesNearlyFull reports whether the cluster has nine tenths of the identities that it
// can have.
func (t *identities) IdentitiesNearlyFull() bool { return len(t.list) >= maxIdentities/10*9 }

func (d *digester) mixIdentity(i *Identity) {
	var e encoder
	i.fields(&coder{e: &e})
	d.mixBytes(e.b)
}

// identitiesPerFrame is the maximum number of identities, or join tokens, in a frame of a
// snapshot.
const identitiesPerFrame = 256

func (f *frameWriter) identities(s *State) {
	for part := range slices.Chunk(s.identities.list, identitiesPerFrame) {
		list(&f.c, &part, func(i **Identity) { (*i).fields(&f.c) })
		f.frame(frameIdentities)
	}
}

// identities reads a frame of identities. Each must be one that operations can create, and
// follow the one before it. What belongs to two of them is found by the counts of the maps.
func (f *frameReader) identities(d *decoder) {
	var part []*Identity
	c, t := coder{d: d}, &f.s.identities
	list(&c, &part, func(i **Identity) {
		*i = new(Identity)
		(*i).fields(&c)
	})
	if d.err != nil {
		return
	}
	t.own = f.s.own
	t.list = append(t.list, part...)
	for _, i := range part {
		t.index(f.s.own, i)
	}
}

// check checks each identity, and that it is found by what belongs to it alone.
func (t *identities) check(nextToken JoinTokenID) error {
	last, names, hashes, keys := IdentityID(0), 0, 0, 0
	for _, i := range t.list {
		switch {
		case i.ID <= last || i.ID >= t.next:
			return fmt.Errorf("identity %d follows identity %d, next is %d", i.ID, last, t.next)
		case i.malformed():
			return fmt.Errorf("identity %d is malformed", i.ID)
		case i.JoinToken >= nextToken && i.JoinToken != 0:
			return fmt.Errorf("identity %d was created with the unknown join token %d", i.ID, i.JoinToken)
		case i.Key != "" && t.IdentityByKey(i.JoinToken, i.Key) != i:
			return fmt.Errorf("identity %d is not found by its key %q", i.ID, i.Key)
		}
		last = i.ID
		if i.Key != "" {
			keys++
		}
		if i.IsRevoked() {
			continue
		}
		names++
		hashes += len(i.Credentials)
		if t.find(&t.names, i.nameKey()) != i {
			return fmt.Errorf("identity %d is not found by its name %q", i.ID, i.Name)
		}
		for _, c := range i.Credentials {
			if t.IdentityByHash(c.Hash) != i {
				return fmt.Errorf("identity %d is not found by its credential", i.ID)
			}
		}
	}
	if len(t.list) > maxIdentities || t.names.n != names || t.hashes.n != hashes || t.keys.n != keys {
		return fmt.Errorf("%d identities have %d names, %d credentials and %d keys; counted %d, %d and %d",
			len(t.list), t.names.n, t.hashes.n, t.keys.n, names, hashes, keys)
	}
	return nil
}
