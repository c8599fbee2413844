package fsm

// Revocation is one that followed a backup: a restore repeats it, so that access that was
// taken away is not given back. One of the first three fields is set.
type Revocation struct {
	Identity  IdentityID
	JoinToken JoinTokenID
	// Worker is the name of a worker whose machine was replaced by another one.
	Worker string
	// Successor is the identity of that other machine: it and later ones that have the name
	// are not revoked.
	Successor IdentityID

	AtMS int64  // when it was made
	By   string // name of the identity that asked for it
}

// Revocations are what became of those of a Restoration.
type Revocations struct {
	Applied int          // the backup had the access
	Before  int          // it had ended in the backup, too
	Unknown []Revocation // the backup does not know it: it was given later
}

// revoke repeats the revocations.
func (s *State) revoke(list []Revocation) (done Revocations) {
	for _, r := range list {
		known, ended := s.access(&r)
		switch {
		case !known:
			done.Unknown = append(done.Unknown, r)
		case ended:
			done.Before++
		default:
			s.revokeAccess(&r)
			done.Applied++
		}
	}
	return done
}

// access reports whether the state has had what a revocation ends, and whether that has
// ended. What is forgotten has ended long ago.
func (s *State) access(r *Revocation) (known, ended bool) {
	switch {
	case r.Identity != 0:
		i := s.identities.Identity(r.Identity)
		return r.Identity < s.identities.next, i == nil || i.IsRevoked()
	case r.JoinToken != 0:
		x := s.joinTokens.JoinToken(r.JoinToken)
		return r.JoinToken < s.joinTokens.next, x == nil || x.IsRevoked()
	}
	i := s.IdentityByName(r.Worker, true)
	return i != nil, i != nil && i.ID >= r.Successor
}

// revokeAccess ends what the state has and has not ended.
func (s *State) revokeAccess(r *Revocation) {
	at, by := max(r.AtMS, 1), r.By[:min(len(r.By), maxIdentityText)]
	switch {
	case r.Identity != 0:
		s.revokeIdentity(s.identities.Identity(r.Identity), at, by, nil)
	case r.JoinToken != 0:
		s.changeJoinToken(s.joinTokens.JoinToken(r.JoinToken), func(x *JoinToken) { x.RevokedMS, x.RevokedBy = at, by })
	default:
		s.revokeIdentity(s.IdentityByName(r.Worker, true), at, by, nil)
	}
}
