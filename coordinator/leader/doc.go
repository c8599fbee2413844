// Package leader runs the leader's duties: from the time this replica has won
// an election and caught up, until it loses its term or stops.
//
//	LeaderCh ─true─► lead ─► barrier ─► duty ┐
//	    ▲                               duty ├─ until the term ends: true or false
//	    │                               duty ┘  from LeaderCh, or ctx is done
//	    │                                │
//	    └──── Transfer ◄── a duty failed ┘      if that fails too, Run returns, and
//	                                            the process ends
//
// A term is one call of lead. Everything that a term starts ends before lead
// returns, and the next term starts only then: two terms of a process never
// overlap, and nothing needs to be reset. What a term creates (queues,
// sessions, timers) ends with it.
//
// A leader that can't do its duties is worse than none: it stays elected while
// nothing happens. So a duty that returns early, a barrier that takes too long,
// and a state machine that makes no progress (Watchdog) each end the term with
// a leadership transfer. If the transfer fails, the process ends.
//
// The package doesn't know what the duties do, and no other package asks
// whether this replica leads. It has one goroutine per term and one per duty;
// Run waits for them.
package leader
