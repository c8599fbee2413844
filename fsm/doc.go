// Package fsm is the replicated state machine: all that the cluster agrees on,
// and the operations that change it.
//
// It is a total, deterministic function of the log. An entry goes in, the state
// changes in the same way on every replica, or the operation is refused in the
// same way on every replica, or the replica halts because it does not
// understand the entry. There is no clock, no chance, no goroutine, no I/O, no
// logging and no policy here: the leader decides who runs what, when a retry is
// due and what is too late, and writes down the result; this package checks
// that it is allowed and stores it. Times are values in the operations.
//
//	Entry ── Codec ──► bytes in the log ── Codec ──► Entry
//	                                                   │ Apply
//	Draft ── the sequencer's fork, one entry ahead     ▼
//	                            State ──► Effects (what became ready, what ended)
//	                              │ Fork
//	                              ▼
//	                   snapshot, long reads, the sequencer's view
//
// # Memory
//
// A task costs one 40-byte record, its submitted form as encoded bytes, four
// bytes to find them, and four for each edge in both directions; no map entry
// and no string. What was submitted is immutable and shared. What changes lies
// in pages marked with their owner: Fork shares all of it, and each side copies
// a page before it first writes to it. So a snapshot, a long read and the
// sequencer's speculative view are the same cheap thing, and there is one
// implementation of each rule.
//
// # Fencing
//
// A task's attempt number only grows. An outcome counts only if it comes for
// the attempt in the record, from the worker in the record, while the task is
// assigned: held in apply_attempt.go is the one place that decides.
//
// # Ends and returns
//
// A task that completed never changes again. All other ends people may undo:
// Revive brings tasks back under their old attempt numbers, so that fencing
// holds, and only those for which everything they depend on may still complete.
// Attempts that failed or were lost stay readable until the task completes:
// notes in history.go, each with a link to the one before.
//
// # Digest
//
// A running hash over the old and new contents of everything that an entry
// touches is part of the state. Replicas compare it at equal indexes.
//
// # Where things are
//
// op.go names the operations, apply_*.go say what each requires, does and
// refuses, transition.go has the table of task states, codec*.go the log format
// (golden files in testdata), snapshot.go and restore.go the snapshot format,
// view.go the reading side, check.go the invariants, machine.go the lock.
package fsm
