// Package client is the Go client of dtask. It submits jobs, reads and watches
// them, waits for them and cancels them.
//
// A Client hides that a cluster has several coordinators, one of which leads.
// A call tries all known addresses, follows redirects to the leader (at most
// three per attempt), leaves a coordinator that hangs, and retries whatever is
// safe to retry until Config.Timeout. A submission has an idempotency key,
// generated if the caller has none, so that a retry after an unknown outcome
// never creates a second job.
//
// The client keeps a bounded list of addresses (the seeds of its configuration
// and those that coordinators return) and one connection to each address that
// was used. It does not read files or environment variables, and does not
// print or log.
//
// While a call is in progress, a goroutine pings its coordinator; it ends
// before the call returns. All submissions of a connection share one stream,
// whose goroutines end with Close. A Client may be used by many goroutines at
// once.
//
// A Client belongs to one cluster: that of Config.Cluster, or of the first
// coordinator that answers. Each call names it, and coordinators of other
// clusters refuse the call without an effect. ForeignAddresses returns theirs.
//
// A Client sends Config.Token with every call, but never where others could read it. It
// connects to other machines over TLS only: Trust says which CA the cluster has. Join
// makes an identity by a join string, whose secret it sends only to a coordinator of the
// cluster that the string names.
//
// Every error wraps one of ErrNotFound, ErrConflict, ErrRefused, ErrUnauthenticated,
// ErrUntrusted, ErrClock, ErrBusy, ErrForeignCluster, ErrInvalid, ErrCompacted and
// ErrUnreachable, or the cause of the caller's context, or is an internal error of a
// coordinator. Use errors.As with *Error for the details.
package client
