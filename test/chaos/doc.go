// Package chaos breaks real clusters over and over under load, and judges what
// became of the work by the ledger that the commands themselves wrote (package
// ledger), not by what dtask says of itself.
//
// What it is for: the leader is killed, and the next, and the next; two within a
// second; all coordinators at once for ten seconds. Every acknowledged job
// completes, each task has one accepted completion, and no task that ran on a
// worker that was well is started again.
//
// Each test prints its seed and the line that repeats it: what is submitted and
// when things are broken follows from the seed, while processes and the kernel
// keep their own time. DTASK_CHAOS_SEED sets the seed, DTASK_CHAOS_MINUTES makes
// the tests go on for about that long together. A failed test keeps data, logs
// and ledger.
//
// The tests run one after another: each needs the machine for itself.
package chaos
