// Package history keeps finished jobs that have left the replicated state, in one
// bbolt file in the data directory of each replica.
//
//	fsm: Archive ──Take──► pending (memory) ──one transaction──► history.db
//	                          │                                    │
//	                          └────────────── reads ───────────────┘
//	     a replica that lacks a range ◄── Fetch ── Serve: another replica
//
// A job that leaves the state at a log index is pending until it is in the file, and
// reads find it in memory meanwhile. The file holds the log index up to which it is
// complete, written in the transaction that makes it so; entries replayed up to that
// index are ignored. Before a snapshot is stored, Sync brings the file up to the
// snapshot's index, so that a job that is compacted out of the log is on disk.
//
// The record of a large job has a summary near its beginning, so that its status is shown
// without reading the rest. Config.Summarize makes it, and this package does not know
// what it means.
//
// Runs of a schedule have the same tasks. The part of a record that has them is its
// template, which is stored once for all runs if it is large: see template.go. Records are
// whole wherever they leave the file.
//
// History is in no snapshot. A replica that restored a snapshot newer than its file
// has a gap, a range of the log, and reports that it is incomplete until another
// replica has filled the gap. The same happens to a damaged file: each value has a
// checksum, a file with a wrong one is quarantined, and a new file starts as one gap.
// The whole file is checked once a day at a low rate, so that damage is found while
// other replicas still have the lost jobs. Jobs that no replica has are salvaged from
// the quarantined file as far as it can be read.
//
// The history of a restored backup is in an import file, which has all jobs of a gap:
// they are read from there, and sent to other replicas, until the fetcher has imported
// them. Then the file is removed. The gap says how far that is, so that a crash at any
// time only delays it.
//
// Package index finds jobs by name, owner, state, label and time of submission;
// package format has the keys and checksums.
//
// # Goroutines and errors
//
// Run starts the writer, which alone changes the file, the fetcher and the scrubber,
// and waits for them. A broken history file never stops the replica: Raft does not
// need it.
package history
