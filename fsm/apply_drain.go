package fsm

// apply keeps a worker from being given anything new. What it holds is ended by
// operations of its own, as the leader decides at the deadline.
// Rejects: NoSuchWorker, Malformed without a deadline or for an overlong reason.
// A second copy changes nothing.
func (o *DrainWorker) apply(s *State, _ *Effects) Reason {
	if o.Until <= 0 || tooLong(o.Reason) {
		return Malformed
	}
	return s.setDrain(o.ID, o.Until, o.Reason)
}

// apply lets a worker work again.
// Rejects: NoSuchWorker, AlreadyEnded if it does not drain.
func (o *UndrainWorker) apply(s *State, _ *Effects) Reason {
	if w := s.worker(o.ID); w != nil && !w.Drains() {
		return AlreadyEnded
	}
	return s.setDrain(o.ID, 0, "")
}

func (s *State) setDrain(id WorkerID, until int64, reason string) Reason {
	at, found := s.workerAt(id)
	if !found {
		return WorkerNotFound
	}
	list := s.writeWorkers()
	w := *list[at]
	s.mixWorker(&w)
	w.DrainUntil, w.DrainReason = until, reason
	list[at] = &w
	s.mixWorker(&w)
	return Accepted
}
