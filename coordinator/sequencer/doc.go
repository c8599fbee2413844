// Package sequencer is one term of leadership: the only proposer of log
// entries, and the only one that knows both the state machine and the
// scheduler.
//
//	reports, workers, cancels, submissions        due timers
//	        │ inbox (bounded, by class)               │
//	        ▼                                         ▼
//	┌───────────────────── one goroutine ───────────────────────┐
//	│ each is checked against the view and applied to it at once │
//	│ what became ready goes to the scheduler                    │
//	│ the scheduler gives ready tasks to free slots              │
//	└──────────────────────────┬────────────────────────────────┘
//	                           ▼ one entry of all of it
//	                  Log (at most InFlight on their way)
//	                           ▼ committed and applied, in order
//	   assignments, stops, acknowledgements to sessions; answers to clients
//
// # The view
//
// The view is a fork of the replicated state with every entry on its way
// applied (fsm.Draft). Nothing is decided against older data and the rules are
// not written twice. Because there is one proposer and raft keeps its order,
// what the view accepted the replicated state accepts; the digests of both are
// compared at each entry. When leadership is lost, the view dies with the term.
//
// # Batching
//
// There is no timer. An entry closes when a place in the pipe is free, so
// entries grow with load: alone, an operation goes at once; under load,
// thousands share one sync of the disks.
//
// # Effects
//
// Nothing leaves before its entry is committed. Refusals, too, wait for the
// entries before them: they were judged by a view that might not come true.
//
// # Soft state
//
// Ready order, free slots, who has a session, time-outs and observations are
// made anew by each term from one scan (term.go) and die with it.
//
// # Goroutines and errors
//
// Run has two: the sequencer, which owns all fields, and the committer, which
// waits for entries in order. Both end before Run returns. ErrTermEnded and
// *BusyError are definite, *RejectedError is a linearized refusal,
// ErrOutcomeUnknown is neither.
package sequencer
