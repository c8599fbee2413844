// Package client talks to a dtask cluster on behalf of people's programs: it
// submits jobs, looks at them, waits for them and cancels them.
//
// What it is for: one Client hides that a cluster has several coordinators of
// which one leads. A call tries all known addresses, follows redirects to the
// leader (at most three a try), leaves a coordinator that hangs, and repeats
// whatever is safe to repeat until Config.Timeout has passed. A submission
// carries an idempotency key, made here if the caller has none, so that a
// repeat after an unknown outcome never makes a second job.
//
// What it owns: the addresses (the seeds that it was given, for ever, and those
// that coordinators told it, as long as there is room) and one connection per
// address that was used.
//
// What it does not do: it reads no files and no environment, prints nothing and
// logs nothing.
//
// Goroutines: each try has one beside it that asks the coordinator whether it
// is alive; it has ended when the call returns. gRPC has its own; Close ends
// them. A Client may be used by many goroutines at once.
//
// Errors: every error wraps one of ErrNotFound, ErrConflict, ErrRefused,
// ErrBusy, ErrInvalid and ErrUnreachable, or the context's cause if the caller gave up,
// or is a coordinator's internal error. As *Error it has the details.
package client
