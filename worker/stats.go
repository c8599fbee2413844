package worker

import (
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Stats are counts since the worker started, and its present load.
type Stats struct {
	Received   uint64 // attempts
	Succeeded  uint64
	Failed     uint64
	TimedOut   uint64
	Cancelled  uint64
	Released   uint64 // handed back
	NotStarted uint64
	Superseded uint64 // stops and verdicts that said so
	Sessions   uint64 // that were welcomed
	Running    int    // attempts at this moment
	Unsettled  int    // outcomes not yet acknowledged
}

func (s *Stats) count(kind dtaskv1.OutcomeKind) {
	switch kind {
	case dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED:
		s.Succeeded++
	case dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED:
		s.Failed++
	case dtaskv1.OutcomeKind_OUTCOME_KIND_TIMED_OUT:
		s.TimedOut++
	case dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED:
		s.Cancelled++
	case dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED:
		s.Released++
	case dtaskv1.OutcomeKind_OUTCOME_KIND_NOT_STARTED:
		s.NotStarted++
	case dtaskv1.OutcomeKind_OUTCOME_KIND_UNSPECIFIED:
	}
}

func (l *ledger) snapshot() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Running, s.Unsettled = l.running, len(l.outcomes)
	return s
}

func (l *ledger) countSuperseded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Superseded++
}

func (l *ledger) sessionOpened() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.connected, l.farewell = true, false
	l.stats.Sessions++
}

func (l *ledger) sessionEnded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.connected = false
	l.signalMoved()
}

// farewellHeard notes that the leader knows that this worker leaves, so that
// what it had sent before has arrived.
func (l *ledger) farewellHeard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.farewell = true
	l.signalMoved()
}

func (l *ledger) isDraining() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.draining
}

// still reports whether no executor runs.
func (l *ledger) still() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running == 0
}

// settled reports whether nothing is left to be said or heard.
func (l *ledger) settled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running == 0 && len(l.outcomes) == 0 && (l.farewell || !l.connected)
}

// longestGrace is the longest kill grace of what runs.
func (l *ledger) longestGrace() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var longest time.Duration
	for _, a := range l.known {
		if a.phase == phaseRunning || a.phase == phaseCommitted {
			longest = max(longest, time.Duration(a.policy.GetKillGraceMs())*time.Millisecond)
		}
	}
	return longest
}
