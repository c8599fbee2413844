package load

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// ends holds the times at which the running tasks of all workers end.
type ends struct {
	changed chan struct{} // size 1: the first end has changed

	mu   sync.Mutex // guards list
	list endList
}

// end is one entry of ends.
type end struct {
	at time.Time
	w  *simulated
	a  attempt
}

type endList []end

func (l *endList) Len() int           { return len(*l) }
func (l *endList) Less(i, j int) bool { return (*l)[i].at.Before((*l)[j].at) }
func (l *endList) Swap(i, j int)      { (*l)[i], (*l)[j] = (*l)[j], (*l)[i] }

// Push implements heap.Interface.
func (l *endList) Push(x any) {
	if e, ok := x.(end); ok {
		*l = append(*l, e)
	}
}

// Pop implements heap.Interface.
func (l *endList) Pop() any {
	last := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return last
}

func (s *ends) add(e end) {
	s.mu.Lock()
	heap.Push(&s.list, e)
	first := s.list[0] == e
	s.mu.Unlock()
	if first {
		select {
		case s.changed <- struct{}{}:
		default: // a token is waiting already
		}
	}
}

// due removes and returns an end that is due, or returns when the next one is.
func (s *ends) due(now time.Time) (e end, ok bool, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 {
		return end{}, false, time.Hour
	}
	if wait = s.list[0].at.Sub(now); wait > 0 {
		return end{}, false, wait
	}
	e, ok = heap.Pop(&s.list).(end)
	return e, ok, 0
}

// run ends tasks until ctx is done.
func (s *ends) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := time.Now()
		e, ok, wait := s.due(now)
		if ok {
			e.w.ended(e.a, now)
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.changed:
		case <-ctx.Done():
			return
		}
	}
}
