// Package api is what the rest of the world calls: the gRPC services JobService
// and ClusterService, the table that turns domain errors into what callers see,
// and the comparison of state digests between replicas.
//
//	client ──► Server ──► JobService ─── writes ──► Leader (the term's sequencer)
//	              │            └──────── reads ───► fsm.Machine, confirmed by Raft
//	              ├─────► ClusterService ─────────► Peers: Identify, Digests
//	              └─────► WorkerService             registered by its owner
//
// # What it owns
//
// The limits on what callers send, the encoding of a submitted job into chunks,
// how jobs and tasks are shown (with the states that are derived rather than
// stored: running and aggregated), how fresh a read is, and the only table from
// errors to gRPC codes (errors.go).
//
// # What it does not do
//
// It proposes nothing itself: a write is a call of the Leader, which exists only
// inside a term. It decides nothing about tasks and knows no Raft: what it needs
// of it is the interface [Raft].
//
// # Reads
//
// A linearizable read is answered by the leader alone, after a quorum confirmed
// it (read.go says why that is enough). A stale one is answered by any replica.
// Both say how fresh they are. Nothing here holds the machine's lock for longer
// than it takes to look at one job; longer reads work on a fork.
//
// # Goroutines
//
// Server.Serve starts those of gRPC and returns when all have ended. Within a
// call, Status starts one for each replica and waits for them; Submit starts one
// for each message, which ends with the call at the latest. Comparer.Run starts
// one for each other replica in each round and waits for them.
//
// # Errors
//
// Handlers return domain errors; the interceptor makes a status of each, with an
// ErrorDetail. What is not in the table becomes Internal with an id that is in
// the log, and nothing else of it reaches the caller.
package api
