// Package api serves the gRPC services JobService, ScheduleService and AdminService, and
// turns errors of all services of a replica into what callers see.
//
//	client ──► Server ──► interceptors ──► JobService ─── writes ──► Leader (the term's sequencer)
//	              │       (methods.go)          └──────── reads ───► fsm.Machine, History
//	              ├─────► ScheduleService, AdminService
//	              └─────► other services, registered by their owners
//
// # What it owns
//
// The table of methods (methods.go): who answers each, how a repeated call behaves, and
// whether a call may wait for a leader. Interceptors admit requests by it. Also the
// limits on requests, the encoding of a submitted job into chunks, how jobs and tasks
// are shown (including the states running and aggregated, which are derived), how fresh
// a read is, and the only table from errors to gRPC codes (errors.go).
//
// # What it does not do
//
// It proposes nothing itself: a write is a call of [Leader], which exists only during a
// term. It decides nothing about tasks, and needs only [Raft] of consensus.
//
// # Rights
//
// A call is authenticated by [Config.Authenticate] before it has a goroutine, and refused
// unless the table of package internal/auth allows it. The principal is in the context of
// the call (caller.go). Column rows of the table of methods says who checks that the
// caller may know of a job: admit, or the handler for each job. A job that the caller may
// not know of is reported like one that does not exist. A submitted job is put into a
// namespace of its caller (claim.go).
//
// # Reads
//
// Only the leader answers a linearizable read, after a quorum has confirmed it
// (consistency.go explains why that is enough). Plans and backups are made by any replica,
// which gets an index from the leader first. Any replica answers a stale read. All
// report their freshness. A handler holds the machine's lock only while it reads one
// job; longer reads work on a fork.
//
// # Goroutines
//
// Server.Serve starts those of gRPC and returns when all have ended. Submit starts
// goroutines for a stream, which end with it; Logs and History start one that ends with
// the call.
//
// # Errors
//
// Handlers return domain errors. The interceptor turns each into a status with an
// ErrorDetail. An error that is not in the table becomes Internal with an id that is in
// the log; nothing else about it reaches the caller.
package api
