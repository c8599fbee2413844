// Package check judges a run of the chaos suite by what was recorded: the
// clients' calls (package history), what the tasks' own code wrote (package
// ledger), the jobs as the healed cluster shows them, and, with all processes
// stopped, the replicas' data folders.
//
// Account always runs, in time linear in the history: nothing acknowledged is
// lost, nothing is there twice, nothing is there that nobody asked for. Linear
// looks for an order of all calls that explains what they returned, for each
// job, task and idempotency key alone, with porcupine; it is a fault if none is
// found in time. Logs compares the replicas' logs entry by entry, verifies each
// checksum, and replays snapshot and log of each to the same digests.
//
// A checker that cannot fail proves nothing: the tests of this package plant
// each kind of fault and see it found.
package check
