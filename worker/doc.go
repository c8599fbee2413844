// Package worker executes attempts for a cluster of coordinators. It is the
// worker's end of the session protocol, and the public API for programs that
// bring their own handlers:
//
//	w, err := worker.New(worker.Config{Join: []string{"localhost:7460"}, Name: "w1"})
//	w.Handle("resize", func(ctx context.Context, t *worker.Task) ([]byte, error) { … })
//	err = w.Run(ctx)
//
// # Parts
//
//	Run ── session after session ──► leader          (connect.go, session.go)
//	              │ ▲
//	   received   │ │ outcomes, notes, answers
//	              ▼ │
//	           ledger: what this worker holds and owes (ledger.go, outbox.go)
//	              │ ▲
//	      next    ▼ │ outcome
//	         slot goroutines ──► handler or command    (attempt.go, command.go)
//
// The ledger is the one place with state. A session owns nothing: any fault ends
// it and another is made, at any coordinator, for ever. Attempts live in the
// ledger and outlive sessions. Each attempt that was received yields exactly one
// outcome; outcomes are numbered in order without gaps, and are kept and
// repeated until they are acknowledged.
//
// # Whom the worker believes
//
// Every message carries (cluster, epoch, term). One that is lower than the
// highest seen comes from a deposed leader: it has no effect, and its session is
// left. One of another cluster is refused with an error in the log. A leader
// from which nothing was heard for two seconds is left with its whole
// connection, although the connection looks healthy.
//
// # Several workers in one process
//
// Each has a name, a work folder and sessions of its own. With [WithConnections]
// their sessions share one connection to each coordinator (connections.go).
//
// # The lease
//
// An at-most-once attempt begins only when its start is committed, and may run
// only while the leader can still believe in this worker. The trust is counted
// from the moment at which an answered beat was sent, by the monotonic clock:
//
//	worker   beat sent ─────────── lease ───────────► stops the attempt
//	leader        └─► beat received ─────────── lease ───────────► gives it up
//
// The leader's count begins later, so the worker's ends first. At-least-once
// attempts need no lease: a worker that cannot find a leader keeps working, and
// fencing settles who was first.
//
// # Goroutines
//
// Run's own goroutine makes sessions; a session has two pumps and one goroutine
// for each log that is being read, and waits for them. Slot goroutines are
// started when there is work, at most as many as slots, and end when there is
// none; Run waits for them, but gives up on a handler that ignores its context.
//
// # Errors
//
// A handler tells with [Fatal], [Retryable], [Named] and [Exit] what its error is
// worth.
// Run returns an error only for what cannot heal: a work folder that cannot be
// used, or attempts that would not end.
package worker
