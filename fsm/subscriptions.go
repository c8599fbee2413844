package fsm

import "sync"

// A Subscription signals that jobs have changed or ended, while entries are applied.
// A signal means that the subscriber should read the state: several changes may share
// one, and there may be nothing new. A job that changed before Subscribe returned
// is not signaled, so subscribe first and read then.
type Subscription struct {
	// Changed receives after a change of any of the jobs. Size 1: a signal that was
	// not received yet covers later changes.
	Changed <-chan struct{}
	// Ended receives when any of the jobs has ended. Changed receives, too.
	Ended <-chan struct{}

	changed, ended chan struct{}

	set   *subscriptions
	links []link
}

// subscriptions are those of a machine. They are not part of the replicated state.
// An entry costs a map access for each job that it changes, however many jobs are
// subscribed to, and nothing if none is.
type subscriptions struct {
	mu    sync.Mutex // guards links, in the map and in subscriptions; locked after the machine
	links map[JobID]*link
}

// A link is one job of one subscription, in the list of the links of that job. About
// 60 bytes with its part of the map.
type link struct {
	job        JobID
	sub        *Subscription
	prev, next *link
}

// Subscribe starts a subscription to jobs, which the caller must close. A job
// may be unknown, or named twice.
func (m *Machine) Subscribe(jobs ...JobID) *Subscription {
	changed, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	s := &Subscription{
		Changed: changed, Ended: ended, changed: changed, ended: ended,
		set: &m.subscriptions, links: make([]link, len(jobs)),
	}
	s.set.mu.Lock()
	defer s.set.mu.Unlock()
	if s.set.links == nil {
		s.set.links = make(map[JobID]*link)
	}
	for i, id := range jobs {
		l := &s.links[i]
		*l = link{job: id, sub: s, next: s.set.links[id]}
		if l.next != nil {
			l.next.prev = l
		}
		s.set.links[id] = l
	}
	return s
}

// Close ends the subscription. It may be called twice.
func (s *Subscription) Close() {
	s.set.mu.Lock()
	defer s.set.mu.Unlock()
	for i := range s.links {
		l := &s.links[i]
		if l.next != nil {
			l.next.prev = l.prev
		}
		switch {
		case l.prev != nil:
			l.prev.next = l.next
		case l.next != nil:
			s.set.links[l.job] = l.next
		default:
			delete(s.set.links, l.job)
		}
	}
	s.links = nil
	if len(s.set.links) == 0 {
		s.set.links = nil // a map doesn't shrink
	}
}

// any reports whether there are links. The machine is locked, so that a later
// subscriber reads the state after the entry that is about to be applied.
func (s *subscriptions) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.links) > 0
}

// signal signals changes of jobs to their subscribers.
func (s *subscriptions) signal(st *State, changed []JobID) {
	if len(changed) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range changed {
		l := s.links[id]
		if l == nil {
			continue
		}
		state, _, ok := st.Progress(id)
		for ended := !ok || state.Terminal(); l != nil; l = l.next {
			l.sub.signal(ended)
		}
	}
}

// signalAll signals to all subscribers that the state was replaced.
func (s *subscriptions) signalAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	// unordered: signals change no state
	for _, l := range s.links {
		for ; l != nil; l = l.next {
			l.sub.signal(true)
		}
	}
}

func (s *Subscription) signal(ended bool) {
	signal(s.changed)
	if ended {
		signal(s.ended)
	}
}

// signal fills a channel of size 1.
func signal(c chan<- struct{}) {
	// unordered: signals change no state
	select {
	case c <- struct{}{}:
	default: // the earlier signal covers this one
	}
}
