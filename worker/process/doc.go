// Package process runs a program and guarantees that its whole process tree
// ends with it.
//
// It is used by the worker to run commands. It owns the processes that it
// starts, their standard streams and the files with their output. It does not
// know tasks, retries, leases or results: the caller builds the [Spec],
// interprets the [Exit], and provides the values of the DTASK_ variables to
// [Environ].
//
// # The supervisor
//
// A program is never a direct child of the worker. Between them is a
// supervisor: the worker's own binary, executed again, which [RunSupervisor]
// detects at the start of main.
//
//	worker ──orders (pipe)──► supervisor ──fork──► program ──► its children …
//	       ◄─status (pipe)───   │ subreaper: orphans become its children
//	       ◄─stdout, stderr (pipes)──────────── program
//
// The supervisor has a session of its own, so that signals of the terminal
// reach neither it nor the program. It is a subreaper, so that orphans of the
// tree become its children. The tree is therefore gone when wait4 reports that
// the supervisor has no child. A process group cannot guarantee that, because
// setsid leaves it; neither can a list of pids, because they are reused.
//
//   - If the program ends, the supervisor kills the rest of the tree, then reports.
//   - If the context ends, all processes of the tree get SIGTERM, and after the grace SIGKILL
//     until none is left.
//   - If the worker dies, by whatever signal, the orders pipe closes and the supervisor kills
//     the tree immediately.
//   - If the supervisor dies, the kernel kills the program (its parent-death signal is
//     SIGKILL). Run kills the rest of the tree and returns a [SupervisorError].
//
// The program gets no_new_privs, umask 022 unless its Spec has another one, no core files, default signal
// dispositions, three file descriptors and exactly the environment of the Spec.
// no_new_privs keeps the tree killable for a worker that is not root: a
// set-user-id program in it gains no privileges.
//
// # Another user
//
// A Pool with a [User] belongs to a worker that is root. Its supervisors stay root, so that
// no program can change or kill them, and every tree can be killed. A program gets user,
// group and supplementary groups between fork and exec. Before the first one, its
// supervisor clears the bounding, inheritable and ambient capabilities, and leaves the
// session keyring, so that the program has no capability and no key. Its pipes belong to
// the user. What depends on files (PATH, the directory, interpreters) is checked with the
// permissions of the user ([User.Do]).
//
// # Goroutines
//
// Run starts one goroutine that writes orders, one that reads the status, and
// one for each standard stream that is not a file; all have ended when it
// returns. The supervisor works in its main goroutine, locked to one thread
// because the parent-death signal depends on the thread; a second goroutine
// reads orders.
//
// # Errors
//
// A program that ran has an Exit and no error, whatever its exit code.
// [StartError]: the program could not be started. [SupervisorError]: the
// supervisor was lost, and the program's fate is unknown. An error that wraps
// context.Cause: the program was stopped. An error of a Writer of the Spec is
// returned with a valid Exit.
package process
