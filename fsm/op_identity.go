package fsm

import "slices"

// CreateIdentity creates an identity with the next number and one credential.
type CreateIdentity struct {
	Name string
	Grant
	Credential Credential // CreatedMS is set when it is applied
	CreatedBy  string     // name of the identity that asks for it
	CreatedMS  int64      // by the leader's clock
	Key        string     // idempotency key; empty: none
}

func (*CreateIdentity) kind() opKind { return 38 }

func (o *CreateIdentity) fields(c *coder) {
	c.str(&o.Name)
	o.Grant.fields(c)
	o.Credential.fields(c)
	c.str(&o.CreatedBy)
	c.i64(&o.CreatedMS)
	c.str(&o.Key)
}

// apply creates an identity. If the same request with the same key has created one,
// nothing changes: see IdentityByKey. The name and the credentials of an identity whose
// credentials have all expired are free: it is revoked.
// Rejects: Malformed; KeyConflict if the key belongs to another request; NameTaken if a
// live identity of its kind (a worker, or any other) has the name; CredentialInUse;
// LimitExceeded.
func (o *CreateIdentity) apply(s *State, fx *Effects) Reason {
	i := &Identity{
		Name: o.Name, Grant: o.Grant.clone(), Credentials: []Credential{o.Credential},
		CreatedBy: o.CreatedBy, CreatedMS: o.CreatedMS, Key: o.Key,
	}
	i.Credentials[0].CreatedMS = o.CreatedMS
	if i.malformed() {
		return Malformed
	}
	i.Digest = i.requestDigest()
	if known, r := s.identities.repeated(i); known {
		return r
	}
	return s.createIdentity(i, false, fx)
}

// clone copies the lists, which the caller of an EntryBuilder may keep.
func (g *Grant) clone() Grant {
	return Grant{g.Role, slices.Clone(g.Namespaces), slices.Clone(g.Labels)}
}

// repeated reports whether a request with the same key was accepted before, and what
// follows for this one.
func (t *identities) repeated(i *Identity) (known bool, r Reason) {
	if i.Key == "" {
		return false, Accepted
	}
	switch made := t.IdentityByKey(i.JoinToken, i.Key); {
	case made == nil:
		return false, Accepted
	case made.Digest != i.Digest:
		return true, KeyConflict
	}
	return true, Accepted
}

// createIdentity adds an identity that is well formed. If replace is set, a live one with
// the same name is revoked.
func (s *State) createIdentity(i *Identity, replace bool, fx *Effects) Reason {
	t := &s.identities
	old := t.find(&t.names, i.nameKey())
	if old != nil && old.IsLive(i.CreatedMS) && !replace {
		return NameTaken
	}
	if other := t.IdentityByHash(i.Credentials[0].Hash); other != nil && other != old {
		return CredentialInUse
	}
	if len(t.list) >= maxIdentities {
		return LimitExceeded
	}
	if old != nil {
		s.revokeIdentity(old, i.CreatedMS, i.CreatedBy, fx)
	}
	i.ID = t.next
	t.next++
	t.list = append(t.write(s.own), i) // new numbers are the highest
	t.index(s.own, i)
	s.mixIdentity(i)
	s.identityChanges++
	return Accepted
}

// changeIdentity replaces an identity by a changed copy.
func (s *State) changeIdentity(old *Identity, change func(*Identity)) {
	t := &s.identities
	at, _ := t.at(old.ID)
	i := *old
	change(&i)
	t.unindex(s.own, old)
	t.write(s.own)[at] = &i
	t.index(s.own, &i)
	s.mixIdentity(old)
	s.mixIdentity(&i)
	s.identityChanges++
}

func (s *State) revokeIdentity(old *Identity, atMS int64, by string, fx *Effects) {
	s.changeIdentity(old, func(i *Identity) { i.RevokedMS, i.RevokedBy = atMS, by })
	if w := s.workers.WorkerByName(old.Name); w != nil && old.Role == RoleWorker {
		s.retireWorker(w)
		fx.revokedWorker(w.ID)
	}
}

// active returns an identity that is not revoked.
// Rejects: IdentityNotFound, IdentityRevoked.
func (t *identities) active(id IdentityID) (*Identity, Reason) {
	switch i := t.Identity(id); {
	case i == nil:
		return nil, IdentityNotFound
	case i.IsRevoked():
		return nil, IdentityRevoked
	default:
		return i, Accepted
	}
}

// AddCredential gives an identity a second credential, and an end to the first one.
type AddCredential struct {
	ID         IdentityID
	Credential Credential // CreatedMS is set when it is applied
	CreatedMS  int64      // by the leader's clock
	// OthersExpireMS is when the credential that the identity has expires, unless it
	// does so before; 0 = unchanged.
	OthersExpireMS int64
}

func (*AddCredential) kind() opKind { return 39 }

func (o *AddCredential) fields(c *coder) {
	number(c, &o.ID)
	o.Credential.fields(c)
	c.i64(&o.CreatedMS)
	c.i64(&o.OthersExpireMS)
}

// apply adds a credential. Expired ones are removed first.
// Rejects: Malformed, IdentityNotFound, IdentityRevoked, CredentialInUse; LimitExceeded if
// the identity has two valid credentials.
// A second copy, or one with the hash of a credential that the identity has, changes
// nothing and is accepted.
func (o *AddCredential) apply(s *State, _ *Effects) Reason {
	added := o.Credential
	added.CreatedMS = o.CreatedMS
	if added.malformed() || o.OthersExpireMS < 0 {
		return Malformed
	}
	old, r := s.identities.active(o.ID)
	if r != Accepted {
		return r
	}
	if other := s.identities.IdentityByHash(added.Hash); other == old {
		return Accepted
	} else if other != nil {
		return CredentialInUse
	}
	credentials := make([]Credential, 0, maxCredentials)
	for _, c := range old.Credentials {
		if c.IsExpired(o.CreatedMS) {
			continue
		}
		if len(credentials)+1 == maxCredentials {
			return LimitExceeded
		}
		if end := o.OthersExpireMS; end != 0 && (c.ExpiresMS == 0 || c.ExpiresMS > end) {
			c.ExpiresMS = max(end, c.CreatedMS+1)
		}
		credentials = append(credentials, c)
	}
	credentials = append(credentials, added)
	s.changeIdentity(old, func(i *Identity) { i.Credentials = credentials })
	return Accepted
}

// RevokeIdentity revokes identities. They stay in the state until they are forgotten.
type RevokeIdentity struct {
	IDs  []IdentityID // ascending, 1 to 100: a worker's attempts are requeued in the same entry
	AtMS int64        // by the leader's clock
	By   string       // name of the identity that asks for it
}

func (*RevokeIdentity) kind() opKind { return 40 }

func (o *RevokeIdentity) fields(c *coder) {
	list(c, &o.IDs, func(id *IdentityID) { number(c, id) })
	c.i64(&o.AtMS)
	c.str(&o.By)
}

// apply revokes all of the identities or none. Effects name the workers among them, whose
// attempts the leader requeues with other operations.
// Rejects: Malformed, IdentityNotFound.
// Identities that are revoked stay as they are, and the operation is accepted.
func (o *RevokeIdentity) apply(s *State, fx *Effects) Reason {
	if len(o.IDs) == 0 || len(o.IDs) > maxRevoked || o.AtMS <= 0 || len(o.By) > maxIdentityText {
		return Malformed
	}
	for n, id := range o.IDs {
		if n > 0 && o.IDs[n-1] >= id {
			return Malformed
		}
		if s.identities.Identity(id) == nil {
			return IdentityNotFound
		}
	}
	for _, id := range o.IDs {
		if i, r := s.identities.active(id); r == Accepted {
			s.revokeIdentity(i, o.AtMS, o.By, fx)
		}
	}
	return Accepted
}

// DropCredential removes one of the two credentials of an identity.
type DropCredential struct {
	ID   IdentityID
	Hash [sha256Len]byte
}

func (*DropCredential) kind() opKind { return 41 }

func (o *DropCredential) fields(c *coder) {
	number(c, &o.ID)
	c.hash(&o.Hash)
}

// apply removes a credential.
// Rejects: IdentityNotFound, IdentityRevoked, AlreadyEnded if the identity has no such
// credential, WrongState if it has no other one: revoke the identity instead.
func (o *DropCredential) apply(s *State, _ *Effects) Reason {
	old, r := s.identities.active(o.ID)
	switch {
	case r != Accepted:
		return r
	case old.Credential(o.Hash) == nil:
		return AlreadyEnded
	case len(old.Credentials) == 1:
		return WrongState
	}
	s.changeIdentity(old, func(i *Identity) {
		i.Credentials = slices.DeleteFunc(slices.Clone(old.Credentials), func(c Credential) bool { return c.Hash == o.Hash })
	})
	return Accepted
}
