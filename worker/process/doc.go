// Package process runs a program so that nothing of it outlives the run.
//
// It is for the worker's command executor. It owns the processes that it
// starts, their standard streams and the file that keeps their output. It does
// not know tasks, retries, leases or results: the caller builds the [Spec],
// decides what an [Exit] means, and gives [Environ] the values of the DTASK_
// variables.
//
// # The supervisor
//
// A program is never the worker's own child. Between them stands a supervisor: the
// worker's binary executed once more, which [RunSupervisor] recognises before
// anything else of the program has begun.
//
//	worker ──orders (pipe)──► supervisor ──fork──► program ──► its children …
//	       ◄─status (pipe)───   │ subreaper: orphans come back to it
//	       ◄─stdout, stderr (pipes)──────────── program
//
// The supervisor is in a session of its own, so that the terminal's signals reach
// neither it nor the program, and it is a subreaper, so that whatever loses its
// parent becomes its child. That makes one sentence true: the tree is gone when
// wait4 says that the supervisor has no child. A process group cannot say that
// (setsid leaves it), nor can a list of pids (they are reused).
//
//   - The program ends: the supervisor kills what is left of the tree, then reports.
//   - The context ends: SIGTERM to every process of the tree, and after the
//     grace SIGKILL until nothing is left.
//   - The worker dies, by whatever signal: the orders pipe closes and the supervisor
//     kills the tree at once.
//   - The supervisor dies: the kernel kills the program (its parent-death signal is
//     SIGKILL), Run kills what it still finds of the tree and returns a
//     [SupervisorError].
//
// The program gets no_new_privs, umask 077, no core files, the signal
// dispositions of a fresh process, three file descriptors and exactly the
// environment of the Spec. no_new_privs is what keeps the tree killable for a
// worker that is not root: a set-user-id program in it gains nothing.
//
// # Goroutines
//
// Run starts one goroutine that writes orders, one that reads the status, and
// one for each standard stream that is not a file; all have ended when it
// returns. The supervisor does its work in its main goroutine, locked to one thread
// since the parent-death signal follows the thread; a second one reads orders.
//
// # Errors
//
// A program that ran has an Exit and no error, whatever its exit code.
// [StartError]: the program could not be started. [SupervisorError]: the supervisor was
// lost, the program's own fate is unknown. An error that wraps context.Cause:
// the program was stopped. An error from a Writer of the Spec is returned with a
// valid Exit.
package process
