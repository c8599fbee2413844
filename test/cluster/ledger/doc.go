// Package ledger is the judge of the suites of whole processes: what commands
// wrote of themselves, and whether that and what dtask says of its jobs can both
// be true of a scheduler that keeps its promises.
//
// What it is for: each command appends a line when it begins and when it ends
// (command mark). Check compares the lines with the jobs as dtaskctl shows them
// and returns every broken promise as a Fault: work that was acknowledged and
// not done, work whose completion was accepted twice, tasks started again though
// their worker was well, tasks begun before what they depend on had ended, and
// attempts or fencing tokens that went back.
//
// What it does not do: it starts nothing and waits for nothing. Times are those
// of one machine's monotonic clock, so all commands must run on one machine.
package ledger
