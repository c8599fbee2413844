// Package backoff decides what follows a failed attempt: a retry after a delay,
// or the end of the task.
//
// Policy.Delay computes the delay, Rules.Decide the decision. Both are pure:
// the caller passes the failure, the count and the seed. The leader's sequencer
// calls them once per failure and stores the result in the log as an absolute
// time, so replicas never compute it. Only this package of the scheduler may
// use floats.
//
// # Failure classes
//
// retry.on and retry.except list classes. The grammar is case-sensitive and has
// no spaces:
//
//	class  = "exit:" code [ "-" code ]   a command's exit code, or a range of them
//	       | "signal:" name              a command killed by a signal
//	       | "timeout"                   any timeout of the attempt
//	       | "lost"                      its worker went down, or released it
//	       | "start"                     it could not be started
//	       | "oom"                       killed for lack of memory
//	       | "error:" name               a named error of a handler
//	code   = 1 to 255, in decimal without leading zeros; ranges ascend
//	name   = a signal as in Signals, without SIG; for an error, a letter and
//	         then up to 62 letters, digits, "_", "-" or "."
//
// The package has no state and no goroutines. Only ParseClass returns errors.
package backoff
