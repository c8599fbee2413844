// Package fsm is the replicated state machine: the state that all replicas agree on,
// and the operations that change it.
//
// It is a total, deterministic function of the log. An entry changes the state in the
// same way on every replica, or is rejected in the same way, or halts a replica that
// does not understand it. The package has no clock, randomness, goroutines, I/O,
// logging or policy. The leader decides which worker runs a task, when a retry is due
// and when a deadline has passed, and proposes the result. This package checks that
// the result is allowed and stores it. Times are values in the operations.
//
//	Entry ── Encode ──► bytes in the log ── Decode ──► Entry
//	                                                     │ Apply
//	EntryBuilder ── on the sequencer's fork, one entry   ▼
//	                ahead         State ──► Effects (tasks that became ready or ended)
//	                                │ Fork
//	                                ▼
//	                     snapshots, long reads, the sequencer's view
//
// # Memory
//
// A task costs one 48-byte record, its submitted form as encoded bytes, four bytes to
// find them, and four bytes for each dependency in both directions; no map entry and
// no string. The submitted form is immutable and shared. What changes lies in pages
// marked with their owner: Fork shares all pages, and each side copies a page before
// its first write. A snapshot, a long read and the sequencer's speculative view are
// therefore the same cheap thing, and each rule is implemented once.
//
// # Fencing
//
// A task's attempt number only grows. An outcome counts only if it is for the attempt
// in the record, from the worker in the record, while the task is assigned.
// State.held in op_assign.go decides this, and nothing else does.
//
// # Terminal states and revival
//
// A task that completed never changes again. Users can undo all other ends: Revive
// brings tasks back with their old attempt numbers, so that fencing holds, and only
// if the conditions of all their dependencies may still hold. Failed and lost attempts
// stay readable until the task completes: they are notes in history.go, each with a link
// to the previous one.
//
// # Digest
//
// A running hash over the old and new contents of everything that an entry changes is
// part of the state. Replicas compare it at equal indexes.
//
// # Files
//
// op.go has the table of operations, op_*.go the operations, transition.go the table
// of task states, condition.go what a dependency means, follow.go what follows the end of
// a task, outcome.go how a job ends, needs.go which jobs wait for it, coder.go and
// entry.go the log format (golden files in testdata), level.go which operations a cluster
// may use, snapshot.go and restore.go the snapshot format, view.go the accessors of jobs
// and tasks, check.go the invariants, machine.go the lock, subscriptions.go the signals to
// readers. The other parts of the state are in files of their own with their accessors:
// cluster.go, workers.go, keys.go, checkpoint.go, results.go, notifications.go,
// dead_letters.go, identity.go, join_token.go, trust.go, schedule.go and digest.go.
// identity_watch.go signals to a replica that identities, join tokens or trust changed.
package fsm
