// Package notify tells others what happened: a webhook that a job named that the
// job has ended, and the cluster's own webhook and command that a task became a
// dead letter. docs/webhooks.md is what receivers may rely on.
//
//	fsm: queue of notices ──► deliverer ──► HTTP POST, or a command ──► receiver
//	       ▲                   one term         at most 8 at a time,
//	       │                                    one to each host
//	       └── sequencer: "told" ◄── delivered, or given up
//
// # What is kept
//
// A notice is in the replicated state from the entry in which its cause is, until
// an entry says that it was delivered or given up: so a change of leader forgets
// none, and one that was delivered just before is delivered again, under the same
// id. What is sent is made from the state at the time of sending.
//
// # Goroutines
//
// Run blocks for one term. It has one goroutine that owns the queue, one for
// each delivery and one for the recording of outcomes, and all of them have ended
// when it returns: requests are cancelled, and the process group of a command is
// killed. Nothing here is waited for by the sequencer.
//
// # Errors
//
// What a receiver answers is no error of this package: it is a retry or the end
// of a notice, counted in Totals and logged. Run returns why its context ended.
package notify
