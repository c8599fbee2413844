package fsm

// ForgetKeys removes idempotency keys.
type ForgetKeys = List[string, forgetKeysOp]

type forgetKeysOp struct{}

func (forgetKeysOp) kind() opKind { return 25 }

func (forgetKeysOp) fields(c *coder, name *string) { c.str(name) }

func (forgetKeysOp) size(name *string) int { return len(*name) }

// apply removes a key.
// Rejects: KeyNotFound, WrongState while its job is being uploaded.
func (forgetKeysOp) apply(s *State, name string, _ *Effects) Reason {
	k, ok := s.keys.get(name)
	switch {
	case !ok:
		return KeyNotFound
	case !k.sealed():
		return WrongState
	}
	s.mixKey(name, k)
	s.keys.delete(s.own, name)
	return Accepted
}
