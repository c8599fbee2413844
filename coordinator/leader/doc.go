// Package leader runs the duties of the leader: from the moment this replica has
// won an election and caught up, until it loses its term or stops.
//
//	LeaderCh ─true─► lead ─► barrier ─► duty ┐
//	    ▲                               duty ├─ until the term is lost: true or false
//	    │                               duty ┘  from LeaderCh, or ctx is done
//	    │                                │
//	    └──── Transfer ◄─── a duty failed┘      and if that fails too: Run returns,
//	                                            and the process ends
//
// Being the leader is being inside one call of lead. All that a term starts has
// ended before lead returns, and the next term begins only then: two terms of one
// process never overlap, and nothing needs to be reset. What a term makes (queues,
// sessions, timers) dies with it.
//
// A leader that cannot do its duties is worse than none: it stays elected while
// nothing happens. So a duty that returns early, a barrier that takes too long, and
// a state machine that stands still (Watchdog) each end the term by handing
// leadership over, and if that is impossible, the process.
//
// The package does not know what the duties do, and nobody else asks whether this
// replica leads. Its goroutines are one per term and one per duty; Run waits for
// them.
package leader
