package fsm

import "slices"

// ForgetIdentities removes identities and join tokens that ended long ago. An identity whose
// credentials have expired stays while it has set a schedule, which needs it.
type ForgetIdentities struct {
	BeforeMS int64  // those that ended before this time
	Max      uint32 // at most as many, 1 to 10,000; identities first, by number
}

func (*ForgetIdentities) kind() opKind { return 47 }

func (o *ForgetIdentities) fields(c *coder) {
	c.i64(&o.BeforeMS)
	number(c, &o.Max)
}

// apply removes them. Their numbers are not reused, and their idempotency keys are unknown
// afterwards.
// Rejects: Malformed, AlreadyEnded if none ended before the time.
func (o *ForgetIdentities) apply(s *State, _ *Effects) Reason {
	if o.BeforeMS <= 0 || o.Max == 0 || o.Max > maxForgotten {
		return Malformed
	}
	left := s.forgetIdentities(o.BeforeMS, int(o.Max))
	left = s.forgetJoinTokens(o.BeforeMS, left)
	if left == int(o.Max) {
		return AlreadyEnded
	}
	s.identityChanges++
	return Accepted
}

// endedBefore reports whether something that ends at a time, or never if it is 0, ended
// before another time.
func endedBefore(endMS, beforeMS int64) bool { return endMS != 0 && endMS < beforeMS }

// forgetIdentities removes identities that ended before a time, at most left. It returns how many
// more may be removed.
func (s *State) forgetIdentities(beforeMS int64, left int) int {
	if !s.hasEndedIdentity(beforeMS) {
		return left // the list need not be copied
	}
	t, owners := &s.identities, s.scheduleOwners()
	list, kept := t.write(s.own), 0
	for _, i := range list {
		if left == 0 || !mayForget(i, beforeMS, owners) {
			list[kept] = i
			kept++
			continue
		}
		left--
		s.dropIdentity(i)
	}
	clear(list[kept:])
	t.list = list[:kept]
	return left
}

// mayForget reports whether an identity ended before a time, and no schedule needs it.
func mayForget(i *Identity, beforeMS int64, owners map[IdentityID]struct{}) bool {
	_, needed := owners[i.ID]
	return endedBefore(i.EndMS(), beforeMS) && (!needed || i.IsRevoked())
}

// hasEndedIdentity reports whether an identity may be forgotten.
func (s *State) hasEndedIdentity(beforeMS int64) bool {
	t := &s.identities
	if !t.hasEnded(beforeMS) {
		return false
	}
	owners := s.scheduleOwners()
	return slices.ContainsFunc(t.list, func(i *Identity) bool { return mayForget(i, beforeMS, owners) })
}

// dropIdentity removes what an identity is found by.
func (s *State) dropIdentity(i *Identity) {
	s.mixIdentity(i)
	if i.Key != "" {
		s.identities.keys.delete(s.own, requestKey(i.JoinToken, i.Key))
	}
	if !i.IsRevoked() {
		s.identities.unindex(s.own, i)
	}
}

// forgetJoinTokens is forgetIdentities for join tokens.
func (s *State) forgetJoinTokens(beforeMS int64, left int) int {
	t := &s.joinTokens
	if left == 0 || !t.hasEnded(beforeMS) {
		return left
	}
	list, kept := t.write(s.own), 0
	for _, x := range list {
		if left == 0 || !endedBefore(x.EndMS(), beforeMS) {
			list[kept] = x
			kept++
			continue
		}
		left--
		s.mixJoinToken(x)
		if x.Key != "" {
			t.keys.delete(s.own, x.Key)
		}
	}
	clear(list[kept:])
	t.list = list[:kept]
	return left
}

func (t *identities) hasEnded(beforeMS int64) bool {
	for _, i := range t.list {
		if endedBefore(i.EndMS(), beforeMS) {
			return true
		}
	}
	return false
}

func (t *joinTokens) hasEnded(beforeMS int64) bool {
	for _, x := range t.list {
		if endedBefore(x.EndMS(), beforeMS) {
			return true
		}
	}
	return false
}

// HasEndedIdentities reports whether there is an identity or a join token that
// ForgetIdentities would remove. It scans all of them.
func (s *State) HasEndedIdentities(beforeMS int64) bool {
	return s.hasEndedIdentity(beforeMS) || s.joinTokens.hasEnded(beforeMS)
}
