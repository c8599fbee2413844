package fsm

// CreateJoinToken creates a join token with the next number.
type CreateJoinToken struct {
	Purpose     JoinPurpose
	Grant       // of the identities; its role must have the purpose
	NamePattern string
	Hash        [sha256Len]byte // SHA-256 of the secret
	Uses        uint32          // 0 = unlimited
	ExpiresMS   int64           // 0 = never
	CreatedBy   string          // name of the identity that asks for it
	CreatedMS   int64           // by the leader's clock
	Key         string          // idempotency key; empty: none
}

func (*CreateJoinToken) kind() opKind { return 42 }

func (o *CreateJoinToken) fields(c *coder) {
	number(c, &o.Purpose)
	o.Grant.fields(c)
	c.str(&o.NamePattern)
	c.hash(&o.Hash)
	number(c, &o.Uses)
	c.i64(&o.ExpiresMS)
	c.str(&o.CreatedBy)
	c.i64(&o.CreatedMS)
	c.str(&o.Key)
}

// apply creates a join token. If the same request with the same key has created one,
// nothing changes: see JoinTokenByKey.
// Rejects: Malformed, KeyConflict if the key belongs to another request, LimitExceeded.
func (o *CreateJoinToken) apply(s *State, _ *Effects) Reason {
	x := &JoinToken{
		Purpose: o.Purpose, Grant: o.Grant.clone(), NamePattern: o.NamePattern, Hash: o.Hash, Uses: o.Uses, ExpiresMS: o.ExpiresMS,
		CreatedBy: o.CreatedBy, CreatedMS: o.CreatedMS, Key: o.Key,
	}
	if x.malformed() {
		return Malformed
	}
	x.Digest = x.requestDigest()
	t := &s.joinTokens
	if made := t.JoinTokenByKey(o.Key); made != nil {
		if made.Digest != x.Digest {
			return KeyConflict
		}
		return Accepted
	}
	if len(t.list) >= maxJoinTokens {
		return LimitExceeded
	}
	x.ID = t.next
	t.next++
	t.list = append(t.write(s.own), x) // new numbers are the highest
	if x.Key != "" {
		t.keys.set(s.own, x.Key, x.ID)
	}
	s.mixJoinToken(x)
	s.identityChanges++
	return Accepted
}

// RedeemJoinToken creates an identity with a join token, and counts the use. The identity
// has the role, namespaces and labels of the token.
type RedeemJoinToken struct {
	Token      JoinTokenID
	SecretHash [sha256Len]byte
	Purpose    JoinPurpose // what the caller joins as
	Name       string
	Credential Credential // CreatedMS is set when it is applied
	// Replace revokes a live worker with the same name. Else it keeps its name.
	Replace bool
	AtMS    int64  // by the leader's clock
	Key     string // idempotency key; empty: none
}

func (*RedeemJoinToken) kind() opKind { return 43 }

func (o *RedeemJoinToken) fields(c *coder) {
	number(c, &o.Token)
	c.hash(&o.SecretHash)
	number(c, &o.Purpose)
	c.str(&o.Name)
	o.Credential.fields(c)
	c.bool(&o.Replace)
	c.i64(&o.AtMS)
	c.str(&o.Key)
}

// apply creates the identity and counts the use. Nothing changes, and nothing is counted,
// if the same request with the same key has created it (see IdentityByKey), or if the live
// identity with the name has the credential and the token's grant already (see
// IdentityByHash).
// Rejects: JoinTokenNotFound also if the secret is another, Malformed, KeyConflict if the
// key belongs to another request, JoinTokenRevoked, JoinTokenExpired, JoinTokenPurpose,
// JoinTokenName, JoinTokenUsedUp, and as CreateIdentity.
func (o *RedeemJoinToken) apply(s *State, fx *Effects) Reason {
	x := s.joinTokens.JoinToken(o.Token)
	if x == nil || x.Hash != o.SecretHash {
		return JoinTokenNotFound
	}
	i := &Identity{
		Name: o.Name, Grant: x.Grant, Credentials: []Credential{o.Credential},
		CreatedBy: x.CreatedBy, CreatedMS: o.AtMS, Key: o.Key, JoinToken: x.ID,
	}
	i.Credentials[0].CreatedMS = o.AtMS
	if i.malformed() {
		return Malformed
	}
	i.Digest = i.requestDigest()
	if known, r := s.identities.repeated(i); known {
		return r
	}
	if r := o.allowed(x); r != Accepted {
		return r
	}
	if s.identities.has(i) {
		return Accepted
	}
	if x.IsUsedUp() {
		return JoinTokenUsedUp
	}
	if r := s.createIdentity(i, o.Replace && x.Purpose == JoinWorker, fx); r != Accepted {
		return r
	}
	s.changeJoinToken(x, func(x *JoinToken) {
		x.Used++
		x.LastUsedMS = o.AtMS
	})
	return Accepted
}

// allowed returns why the token, whose secret is known, does not allow the request.
func (o *RedeemJoinToken) allowed(x *JoinToken) Reason {
	switch {
	case x.IsRevoked():
		return JoinTokenRevoked
	case x.IsExpired(o.AtMS):
		return JoinTokenExpired
	case x.Purpose != o.Purpose:
		return JoinTokenPurpose
	case !x.MatchesName(o.Name):
		return JoinTokenName
	}
	return Accepted
}

// has reports whether the live identity with the same name has all that a new one would
// have.
func (t *identities) has(i *Identity) bool {
	old := t.find(&t.names, i.nameKey())
	if old == nil || !old.Grant.equal(&i.Grant) {
		return false
	}
	c := old.Credential(i.Credentials[0].Hash)
	return c != nil && !c.IsExpired(i.CreatedMS)
}

// changeJoinToken replaces a join token by a changed copy.
func (s *State) changeJoinToken(old *JoinToken, change func(*JoinToken)) {
	at, _ := s.joinTokens.at(old.ID)
	x := *old
	change(&x)
	s.joinTokens.write(s.own)[at] = &x
	s.mixJoinToken(old)
	s.mixJoinToken(&x)
	s.identityChanges++
}

// RevokeJoinToken ends a join token. Identities that were created with it stay.
type RevokeJoinToken struct {
	ID   JoinTokenID
	AtMS int64  // by the leader's clock
	By   string // name of the identity that asks for it
}

func (*RevokeJoinToken) kind() opKind { return 44 }

func (o *RevokeJoinToken) fields(c *coder) {
	number(c, &o.ID)
	c.i64(&o.AtMS)
	c.str(&o.By)
}

// apply revokes a join token.
// Rejects: Malformed, JoinTokenNotFound.
// A token that is revoked stays as it is, and the operation is accepted.
func (o *RevokeJoinToken) apply(s *State, _ *Effects) Reason {
	x := s.joinTokens.JoinToken(o.ID)
	switch {
	case o.AtMS <= 0 || len(o.By) > maxIdentityText:
		return Malformed
	case x == nil:
		return JoinTokenNotFound
	case !x.IsRevoked():
		s.changeJoinToken(x, func(x *JoinToken) { x.RevokedMS, x.RevokedBy = o.AtMS, o.By })
	}
	return Accepted
}
