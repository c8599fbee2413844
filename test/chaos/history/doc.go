// Package history records what clients asked of a cluster and what they were
// told: when each call was made, when it returned, and whether it succeeded,
// failed for certain, or has an unknown outcome. The checkers judge from it.
//
// A call is written twice, when it is made and when it returns, so that a
// recorder that is killed leaves calls without an end, whose outcome is
// unknown. Times are those of the ledger's clock: one machine's monotonic one.
//
// A Recorder may be used from anywhere.
package history
