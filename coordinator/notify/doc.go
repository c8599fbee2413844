// Package notify delivers notifications: to a job's webhook when the job finishes,
// and to the cluster's webhook and command when a task becomes a dead letter.
// docs/webhooks.md describes what receivers may rely on.
//
//	fsm: notification queue ──► deliverer ──► HTTP POST, or a command ──► receiver
//	       ▲                     one term      at most 8 concurrently,
//	       │                                   at most 1 for each host
//	       └── sequencer: RecordDelivered ◄── delivered, or dropped
//
// # Persistence
//
// A notification is part of the replicated state from the log entry with its cause
// until an entry that records it as delivered or dropped. A new leader therefore
// loses no notification. One that was delivered just before the change of leader is
// delivered again, with the same ID. The body is made from the state at the time of
// delivery.
//
// # Addresses
//
// Users choose the webhooks of their jobs, and the leader calls them from within the
// operator's network. AddressPolicy permits public addresses, and private ones that the
// operator allows. It checks the address of each connection, after names are resolved.
// The operator's own hooks are not restricted, and have an HTTP client of their own.
//
// # Goroutines
//
// Run blocks for one term. One goroutine owns the queue, each delivery has one, and
// so has the recording of outcomes. All have finished when Run returns: requests are
// cancelled, and the process group of a command is killed. The sequencer never waits
// for this package.
//
// # Errors
//
// A receiver's response is not an error of this package. It leads to a retry, or to
// a dropped notification, which is counted in Totals and logged. Run returns the
// cause of its context.
package notify
