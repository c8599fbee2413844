// Package load runs thousands of worker sessions in one process, to measure
// clusters with that many workers.
//
// It implements the worker's side of the session protocol itself, over a few
// connections, with one stream per connection or per worker, one goroutine per
// session, and one clock for all of them, so that the measurement is about the
// coordinators and not about the load. Its workers execute nothing: a task
// takes a time that is drawn for it, or none, and succeeds. They follow the
// rules of real workers: outcomes are numbered and repeated until acknowledged,
// held attempts outlive sessions, concurrent attempts are bounded by slots, and
// a leader that is silent for two seconds is left.
//
// At-most-once tasks, timeouts, checkpoints and logs are not simulated: such a
// task fails immediately and permanently.
//
//	      heartbeats ──┐            ┌── ends of tasks (one heap)
//	                   ▼            ▼
//	session 1 … N: state ── send ──► stream ─┐
//	   ▲                                     ├─ connection 1 … C ── leader
//	   └───────────── receive ◄──────────────┘
//
// Run waits for all goroutines that it started. A Load is safe for concurrent
// use.
package load
