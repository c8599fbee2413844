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
// Each stream has three goroutines: the gRPC handler, one that receives and one
// that sends. Both end when the handler has returned, because gRPC then ends the
// stream; the handler cannot wait for them, since nothing but its own return
// unblocks a Recv, or a Send to a worker that does not read.
package session
