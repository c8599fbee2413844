// Package raftnode is one replica's share of the consensus: hashicorp/raft with
// its log, its stable store, its snapshots and its transport, wired so that
// what dtask promises about them holds. It knows bytes, not jobs.
//
//	            Propose ─► raft.ApplyLog ─► group commit ─► the log
//	sequencer                                                  │
//	            ◄─ Proposal, in order ◄─ FSM.Apply ◄─┐         ▼
//	                                                 │   defended store: CRC per entry,
//	reads       ReadIndex ─► one barrier for all     │   watchdog, fail-stop
//	                                                 │         │
//	peers       Mux ─► preface, admission ─► raft ───┘         ▼
//	            (one port: gRPC beside Raft)            raft.db (bbolt, always synced)
//
// It owns:
//   - the log as raft sees it (parallel.go), in which a leader's entries are stored
//     while they are on their way to the others;
//   - the log and the stable store and the wrapper that defends them
//     (store.go): a checksum in every entry and on term and vote, verified when
//     an entry is stored, read and applied; the first error ends the process;
//     and the steps in which entries before a snapshot are deleted (compact.go);
//   - the segments of raft-wal, which can hold the entries in the place of raft.db:
//     the walk over them before they are opened (wal_inspect.go, wal_segment.go), the
//     note of what was stored (wal_note.go), and which store a folder has (layout.go);
//   - the identity of the data folder (identity.go): the server it belongs to,
//     a random instance, and the cluster once it is known;
//   - the one port that gRPC and Raft share (listener.go) and the preface with
//     which every Raft connection opens (preface.go, transport.go);
//   - the watch on the leader's port (watch.go) and the quick election that it
//     makes possible (failover.go);
//   - the room on the disk (space.go): a leader without any hands over;
//   - bootstrap (bootstrap.go): when an empty folder may found a cluster;
//   - the read index (read.go) and the snapshots by log bytes (snapshot.go).
//
// It does not know what an entry means, does not decide when to lead (package
// leader does), and does not answer clients.
//
// Goroutines. Open starts some: the writer of the log; the collector, which completes proposals in
// order; the reader, which confirms leadership once for all reads that wait; the
// snapshotter; the watch on the leader; and the watch on the disk. Each watch connection that a peer
// opened has one. Raft has its own. Close stops and waits for all of them.
// Mux.Run starts one short-lived goroutine per connection.
//
// Errors come in three kinds that never mix: definite refusals
// (*NotLeaderError, ErrNoLeader, ErrBusy, ErrTransferring), the unknown outcome
// (ErrOutcomeUnknown), and those that end the process, which go to Config.Fatal.
package raftnode
