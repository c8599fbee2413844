// Package session is the leader's end of the workers' streams.
//
// A session is one registration of one incarnation of a worker, from hello to
// its end. It owns no work. Attempts belong to the replicated state and to the
// worker's slots, and outlive it: any failure ends the whole session, and the
// worker opens another.
//
// The workers of one process share a multiplexed stream: its messages contain
// frames of many sessions, each with the number of its session. A worker that
// is alone is the only session of its stream.
//
//	                    ┌─ streamSlot 1: session ─┐
//	frames ── receive ──┼─ streamSlot 2: session  ├── sendqueue ── one message ──► workers
//	                    └─ streamSlot 3: session ─┘
//	                          │ reports   ▲ assignments, acknowledgments
//	                          ▼           │
//	                            sequencer
//
// Send never blocks: messages are merged until they are sent, so that under
// load one message contains thousands of assignments, and one number
// acknowledges thousands of outcomes. A worker that does not read costs the
// memory of its assignments, which its slots bound.
//
// The receiving goroutine handles each frame immediately and never waits for a
// session. Reports that the sequencer cannot accept yet wait in their stream
// slot, and delay no other session; a worker that exceeds the bounds of its
// slot must open another session. The end of a session is a frame with its
// status; the end of the stream ends all of its sessions. Messages with one or
// two tasks cost gRPC more CPU than all other work: sharing a stream halves the
// leader's cost of ten thousand workers (docs/adr/0025-multiplexed-streams.md).
//
// A stream may belong to one process, but each of its sessions is a worker of its own:
// Config.Authorize decides about every hello which labels and namespaces the worker is
// granted (grant.go).
//
// Goroutines cost memory, mostly for their stacks, and most sessions are idle. Each
// stream has one: the gRPC handler, which receives. Another one sends, and ends
// when there has been nothing to send for a moment. A session has one while it
// is being opened, while reports wait, and while it is being closed. The handler
// waits for those of its sessions, but not for the sender: only the handler's
// return unblocks a Send to a worker that does not read.
package session
