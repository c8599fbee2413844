// Package check judges a run of the chaos suite by its records: the clients' calls
// (package history), what the tasks' own code wrote (package ledger), the jobs as the
// healed cluster shows them, and, with all processes stopped, the replicas' data
// directories.
//
// Account always runs, in time linear in the history: acknowledged jobs exist,
// nothing exists twice, nothing exists that no client submitted, and explanations and plans are
// true. Linear uses
// porcupine to search, for each job, task and idempotency key separately, for an
// order of all calls that explains their results; not finding one in time is a fault.
// Logs compares the replicas' logs entry by entry, verifies each checksum, and
// replays each replica's snapshot and log to the same digests.
//
// A checker that can't fail proves nothing: the tests of this package plant each kind
// of fault and check that it is found.
package check
