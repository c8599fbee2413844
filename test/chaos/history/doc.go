// Package history records the calls that clients made and the answers they received:
// when each call was made, when it returned, and whether it succeeded, definitely
// failed, or has an unknown outcome. The checkers use these records.
//
// A call is written twice, when it is made and when it returns, so that a killed
// recorder leaves calls without an end, whose outcome is unknown. Times are those of
// the ledger's clock: the monotonic clock of one machine.
//
// A Recorder is safe for concurrent use.
package history
