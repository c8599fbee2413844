package fsm

// Apply applies one entry: every operation in order. It is total: an
// operation that does not fit is rejected and changes nothing. It returns the
// reason of the first rejection, or Accepted. An entry that was built on
// another one than the last is rejected as a whole: its operations may be
// allowed one by one and still be wrong together, such as one task too many
// for a slot that was to become free.
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

// begin starts an entry, both in Apply and in an EntryBuilder.
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
func (d *digester) mixKind(k opKind, r Reason) { d.mix(uint64(k)<<8 | uint64(r)) }
