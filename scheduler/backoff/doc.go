// Package backoff decides what follows a failed attempt: another one, and after
// what wait, or the end of the task.
//
// Policy.Delay is the wait, Rules.Decide the decision. Both are pure: the
// caller brings the failure, the count and the seed. The leader's sequencer calls
// them once for each failure and puts the result into the log as an absolute time,
// so the replicas never compute it. This is the one place of the scheduler where
// floats are allowed.
//
// # Classes of failure
//
// retry.on and retry.except list classes. The grammar, case-sensitive and
// without blanks:
//
//	class  = "exit:" code [ "-" code ]   a command's exit code, or a range of them
//	       | "signal:" name              a command killed by a signal
//	       | "timeout"                   any time-out of the attempt
//	       | "lost"                      its worker was lost, or gave it back
//	       | "start"                     it could not be started
//	       | "oom"                       killed for lack of memory
//	       | "error:" name               an error that a handler named
//	code   = 1 to 255, in decimal without leading zeros; a range ascends
//	name   = a signal as in Signals, without SIG; for an error, a letter and
//	         then up to 62 letters, digits, "_", "-" or "."
//
// The package owns no state, starts no goroutine, and its only errors are those
// of ParseClass.
package backoff
