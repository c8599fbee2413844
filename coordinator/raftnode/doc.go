// Package raftnode runs Raft on one replica: hashicorp/raft with its log (package
// logstore), its network (package transport) and its snapshots. It handles bytes, not
// jobs.
//
//	sequencer ─► Propose ─► raft.ApplyLog ─► group commit ─► logstore ─► disk
//	          ◄─ Proposal, in order ◄─ FSM.Apply ◄─┐             │
//	                                               └── commit ◄──┤
//	reads     ─► ReadIndex ─► one barrier for all                │
//	peers     ◄────────────────── transport ◄────────────────────┘
//
// It owns:
//   - the identity of the data directory (identity.go): the server it belongs to, a
//     random instance, and the cluster once it is known; and the quarantine of a
//     damaged one (quarantine.go);
//   - bootstrap (bootstrap.go): when an empty directory may found a cluster;
//   - proposals (propose.go), reads (read.go), leadership and membership changes
//     (lead.go);
//   - the reaction to a leader whose process exits (failover.go), the connections that
//     are kept open for that (ask.go), and the first election after a start
//     (first_election.go);
//   - snapshots by log bytes (snapshot.go), their store and pacing (snapshot_store.go,
//     reap.go, rate_limited_writer.go), and early reading at start (prepare.go);
//   - the refusal to lose committed entries (conflict.go);
//   - free disk space (space.go): a leader without enough transfers leadership.
//
// It does not know what an entry means, does not decide when to lead (package leader
// does), and does not answer clients.
//
// Goroutines. Open starts the collector, which completes proposals in order; the
// reader, which confirms leadership once for all waiting reads; the snapshotter; the
// first election; the watch on the leader and on its silence; the upkeep of connections;
// and the watch on the disk. Raft has its own. Close stops and waits for all of them.
//
// Errors come in three kinds that never mix: definite refusals (*NotLeaderError,
// ErrNoLeader, ErrBusy, ErrTransferring), the unknown outcome (ErrOutcomeUnknown), and
// those that end the process, which go to Config.Fatal.
package raftnode
