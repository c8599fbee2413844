package fsm

// Apply applies one entry: every operation in order. It is total: an operation
// that does not fit is refused and changes nothing. It gives the reason of the
// first refusal, or Accepted. Of an entry that was made on another one than the
// last, nothing is applied: what it says may be allowed operation by operation
// and still be wrong, such as a task too many for a slot that was to become free.
func (s *State) Apply(e Entry, fx *Effects) Reason {
	follows := e.After == 0 || e.After == s.entries
	s.begin(e.NowMS)
	if !follows {
		return OutOfOrder
	}
	first := Accepted
	for _, op := range e.Ops {
		if r := s.applyOp(op, fx); r != Accepted && first == Accepted {
			first = r
		}
	}
	return first
}

// begin starts an entry, in Apply and in a Draft alike.
func (s *State) begin(nowMS int64) {
	s.entries++
	s.now = nowMS
	s.mix(s.entries)
	s.mix(uint64(nowMS)) //nolint:gosec // bits only
}

func (s *State) applyOp(op Op, fx *Effects) Reason {
	r := op.apply(s, fx)
	s.mixKind(op.kind(), r)
	return r
}

// mixKind adds an operation and its reason to the digest.
func (s *State) mixKind(k opKind, r Reason) { s.mix(uint64(k)<<8 | uint64(r)) }
