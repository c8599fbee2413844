// Package load holds thousands of worker sessions in one process, to see what a
// cluster costs and does with that many workers.
//
// It speaks the protocol of workers itself, over a few connections, on each of which
// the sessions share a stream or have their own, with one goroutine for each session
// and one clock for all of them, so that what is
// measured is the coordinators and not the load. Its workers execute nothing: a
// task takes a time that is drawn for it, or none, and succeeds. They keep the
// promises of real ones: outcomes are numbered and repeated until acknowledged,
// what is held survives a session, no more runs at a time than there are slots,
// and a leader that says nothing for two seconds is left.
//
// Tasks that run at most once, time-outs, checkpoints and logs are not
// simulated: such a task fails at once, for good.
//
//	           beats ──┐            ┌── ends of tasks (one heap)
//	                   ▼            ▼
//	session 1 … N: state ── send ──► stream ─┐
//	   ▲                                     ├─ connection 1 … C ── leader
//	   └───────────── receive ◄──────────────┘
//
// Run waits for all that it started. A Load is safe for concurrent use.
package load
