// Package worker executes attempts for a cluster of coordinators. It is the
// worker's end of the session protocol, and the public API for programs with
// their own handlers:
//
//	w, err := worker.New(worker.Config{Join: []string{"localhost:7460"}, Name: "w1"})
//	w.Handle("resize", func(ctx context.Context, t *worker.Task) ([]byte, error) { … })
//	err = w.Run(ctx)
//
// # Parts
//
//	Run ── one session after another ──► leader      (connect.go, session.go, mux_stream.go)
//	              │ ▲
//	   received   │ │ outcomes, reports
//	              ▼ │
//	      attempt table: attempts and unacknowledged
//	                     outcomes                     (attempt_table.go, outbox.go)
//	              │ ▲
//	      next    ▼ │ outcome
//	         slot goroutines ──► handler or command   (execute.go, command.go)
//
// The attempt table holds all state. A session owns nothing: any failure ends
// it, and the worker opens another at any coordinator, forever. Attempts
// outlive sessions. Each received attempt yields exactly one outcome; outcomes
// are numbered in order without gaps, and are stored and repeated until they
// are acknowledged.
//
// # What a worker gets
//
// A worker announces the types that it has handlers for, and gets no other
// tasks. It gets commands and scripts only if the program calls
// process.RunSupervisor, as the first statement of main: each command runs under
// a process that is this program, executed again. Without that call, Run logs
// that the worker gets no commands, and other workers run them.
//
//	func main() {
//		process.RunSupervisor()
//		…
//	}
//
// # Fencing
//
// Every message carries (cluster, epoch, term). If a message's epoch and term
// are lower than the highest seen, its sender is a deposed leader: the message
// has no effect and the session ends. A message of another cluster is rejected
// and logged as an error. If a leader is silent for two seconds, the worker
// closes the connection, even if it looks healthy. After 250 ms it asks other
// coordinators for a leader of a later term, and moves there as soon as there is
// one (successor.go). After ten failures in a row, it also asks them if a coordinator
// has not welcomed it after 750 ms.
//
// # Names
//
// A worker's attempts belong to its name, so a name has one process. A worker
// without a given name uses that of its host, and chooses another one if a
// process has it; it keeps the name in its directory (name.go). The leader
// refuses a name while another process that has it may be alive:
//
//	hello (name, lock) ─► no session has the name         welcome
//	                      the same lock: a predecessor    welcome
//	                      silent for a liveness timeout   welcome
//	                      otherwise                       refused: host, time of its silence
//	refused again, and the silence has started again      it is alive: another name, or Run returns
//
// A worker that was welcomed once keeps trying: Run must not abandon attempts that
// run.
//
// # Several workers in one process
//
// Each worker has a name, a work directory and sessions of its own. With
// [WithConnections] they share one connection and one multiplexed stream to
// each coordinator (connections.go). A worker without it is the only session of
// its stream.
//
// # Leases
//
// An at-most-once attempt starts only after its start is committed, and runs
// only while the worker holds its lease. An answered heartbeat renews the lease
// from the time at which the heartbeat was sent, by the monotonic clock:
//
//	worker   heartbeat sent ─────────── lease ───────────► stops the attempt
//	leader        └─► heartbeat received ─────────── lease ───────────► marks the worker down
//
// The leader's lease starts later, so the worker's ends first. Attempts that count
// towards a named limit run within the lease, too, and are released at its end;
// supervisors end their commands even while the worker is stopped. Other
// at-least-once attempts need no lease: a worker without a leader continues those
// that it has begun, and fencing tokens decide which attempt counts.
//
// Every attempt needs a fresh confirmation to begin (confirmation.go): an
// answered heartbeat that was sent less than two thirds of the leader's liveness
// timeout ago. It is checked when a slot takes the attempt, and again
// immediately before the handler or command starts. Until the next answer, the
// attempt waits; it can be stopped and stolen meanwhile.
//
// # Goroutines
//
// Run's goroutine waits for the end; another one opens one session after
// another. A multiplexed stream has two goroutines, and each log that is read
// has one. Slot goroutines, at most one per slot, start when attempts are ready
// and end when none is. Run waits for all of them, except for a handler that
// ignores its context.
//
// # Errors
//
// A handler describes its errors with [Fatal], [Retryable], [Named] and [Exit].
// Run returns an error only for permanent problems: an unusable work directory, a
// name or a directory of another process ([NameInUseError], [WorkDirInUseError]),
// or attempts that ignored cancellation.
package worker
