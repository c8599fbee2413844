// Package sequencer is one term of leadership. It is the only proposer of log
// entries, and the only user of both the state machine and the scheduler.
//
//	reports, workers, cancels, submissions        due timers
//	        │ inbox (bounded, by class)               │
//	        ▼                                         ▼
//	┌────────────────────── one goroutine ──────────────────────┐
//	│ check each operation against the view and apply it there  │
//	│ give tasks that become ready to the scheduler             │
//	│ assign what the scheduler chooses to free slots           │
//	└──────────────────────────┬────────────────────────────────┘
//	                           ▼ one entry with all of it
//	               Log (at most InFlight entries in flight)
//	                           ▼ committed and applied, in order
//	   assignments, stops, acknowledgments to sessions; answers to clients
//
// # The view
//
// The view is a fork of the replicated state with every entry in flight applied
// (fsm.EntryBuilder). Nothing is decided with older data, and the rules exist
// only once. Because there is one proposer and Raft keeps its order, the
// replicated state accepts what the view has accepted; the digests of both are
// compared at each entry. When leadership is lost, the view is dropped with the
// term.
//
// # Batching
//
// There is no timer. An entry closes when a slot of the pipeline is free, so
// entries grow with load: a lone operation is proposed immediately; under load,
// thousands share one sync of the disks.
//
// # Effects
//
// Nothing leaves before its entry is committed. Rejections, too, wait for the
// entries before them: they were decided by a view that may not come true.
//
// # Parts
//
// Sequencer is the cycle: take requests from the inbox, fire timers, sweep,
// assign, propose. What a term knows beyond the replicated state is soft state,
// in parts with one subject each. A part gets the batch and the view, and the
// few other parts that it needs:
//
//	dispatcher       ready tasks, held-back cleanup tasks, assignments
//	workerTable      workers that are up, and the attempts that they hold
//	liveness         liveness timeouts, the mass-failure guard
//	attemptTimeouts  timeouts of attempts, deadlines of drains
//	leases           at-most-once attempts of workers that are down
//	reportHandler    reports; outcomes decides on retries
//	resultCache      results of pure tasks
//	stealing         rebalancing of prefetched attempts
//	uploads          submissions that take several entries
//	schedules        which ticks are due, late or missed
//	retention        ended jobs, expired keys, results, workers and identities
//	fencing          workers whose identities were revoked
//	policyTable      task policies, read once per header
//	pipeline         entries in flight, effects after commit
//
// Each term rebuilds them in one scan (term.go) and drops them at its end. A
// new request needs one method that passes a function to do (call.go).
//
// # Goroutines and errors
//
// Run has two goroutines: the sequencer, which owns all fields, and the
// committer, which settles entries in order. Both end before Run returns.
// ErrTermEnded and *BusyError are definite, *RejectedError is a linearized
// refusal, ErrOutcomeUnknown is neither.
package sequencer
