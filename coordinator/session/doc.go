// Package session is the leader's end of the workers' streams.
//
// A session is one registration of one incarnation of a worker: one bidirectional
// stream, from hello to whatever ends it. It owns no work. Attempts belong to
// the replicated state and to the worker's slots, and outlive it; so any fault
// ends a session whole and the worker makes another.
//
//	worker ── pump in ──► heard, beats, log data
//	             │ reports            ▲ answers
//	             ▼                    │
//	         sequencer ── Send ──► pending ── pump out ──► worker
//
// Send never blocks: what it is given joins what has not gone out yet, so that
// under load one message carries thousands of assignments and one number
// acknowledges as many reports. A worker that does not read costs the memory of
// what it was assigned, which its slots bound.
//
// The workers of one process can share a stream, a carrier: its messages hold frames
// of many sessions, each with the number of its session. A session is the same in
// either, with the same admission, errors and bounds; what differs is who sends and
// receives. Whoever receives for the carrier gives each frame its effect at once, and
// one goroutine sends for all: it asks the sessions that have something, and what
// they all have goes in one message.
//
//	       ┌─ lane 1: session ── news ─┐
//	frames ┼─ lane 2: session          ├─► asked in turn ── one message ──► workers
//	       └─ lane 3: session ── news ─┘
//
// A session's own goroutine only waits for its end. Reports for which the sequencer
// has no room wait in their lane, with a goroutine for that time, and keep no other
// session from being heard; a worker that says more than its lane holds is told to
// come again. The end of a session is a frame with its status; that of the stream
// ends all of its sessions. With messages of one or two tasks gRPC costs more than
// all else, so that ten thousand workers cost the leader half in carriers
// (docs/adr/0025-multiplexed-streams.md).
//
// Each stream of one session has three goroutines: the gRPC handler, one that receives and one
// that sends. Both end when the handler has returned, because gRPC then ends the
// stream; the handler cannot wait for them, since nothing but its own return
// unblocks a Recv, or a Send to a worker that does not read.
package session
