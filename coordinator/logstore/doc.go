// Package logstore stores a replica's Raft log, and its term and vote.
//
//	raft ─► ParallelLog ─► Store ───────────────► Backend ─► raft.db            (Bolt: chunks of entries)
//	        sends while    checksum per entry,              or raft.db + wal/   (WAL: segments of raft-wal)
//	        it stores      watchdog, fail-stop
//
// It owns:
//   - the Store, which defends what is stored (store.go, get.go, stable.go, checksum.go): a
//     checksum in every entry and in term and vote, verified when it is stored, read
//     and applied. The first error ends the process. A vote is stored in one write,
//     although raft makes two calls (vote.go);
//   - the log as raft uses it (parallel.go), which stores a leader's entries while they
//     are sent;
//   - the committed index, persisted with the entries (committed.go);
//   - the chunks of an entry in raft.db (chunks.go) and compaction in steps
//     (compact.go);
//   - the segments of raft-wal: preallocation (wal_file.go, prezero.go), the list of
//     segments (wal_list.go), the mark of the last stored entry (wal_mark.go);
//   - the mark of the last transaction of raft.db (bolt_mark.go), and the rule by which
//     an unreadable last write is damage or unfinished (tail.go);
//   - inspection before a store is opened (inspect.go, pages.go, wal_inspect.go,
//     wal_segment.go), which finds the damage that bbolt and raft-wal would panic over
//     or silently skip.
//
// It does not know what an entry means, who leads, or where snapshots are.
//
// Goroutines. A ParallelLog has one, which writes; Close waits for it. raft-wal has its
// own, which Store.Close ends.
//
// Errors. A *DamageError reports stored data that is not what was written. A
// *StoreError, passed to Config.Fatal, reports a store that failed or hangs. A
// *KindError reports the wrong --log-store.
package logstore
