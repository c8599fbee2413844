// Package history keeps jobs that have ended and left the replicated state: one
// bbolt file in the data folder of each replica.
//
//	fsm: Archive ──Take──► pending (memory) ──one transaction──► history.db
//	                          │                                    │
//	                          └────────────── reads ───────────────┘
//	     a replica that lacks a part ◄── Fetch ── Serve: another replica
//
// What leaves the state at a log index is pending until it is in the file, and is
// read from there meanwhile: nothing is ever neither here nor there. The file
// holds the log index up to which it is whole, written in the transaction that
// makes it so; what is replayed up to there is in the file already. Before a
// snapshot is stored, Sync brings the file up to it, so that what a replica
// forgets with its log is on disk.
//
// History is in no snapshot. Whoever restored one that is newer than his file has
// a gap, a range of the log, and says that he is incomplete until another replica
// has filled it. So it is with a file that is damaged: each value has a
// checksum, a file in which one is wrong is set aside, and a new one begins as
// one gap. All of the file is looked at once a day, at a low rate, so that damage is found
// while others have what is lost. What no replica has is read from the file that was set
// aside, as far as that can be read.
//
// # Keys
//
// Jobs are listed newest first by name, owner, state, label and time of submission. The times
// of blocks of jobs say which have none that is looked for. The index has lists of jobs:
// the key is the number of a segment of 65,536 jobs, the word's hash and the rest of the first
// job's number, the value the rests of up to 511 more. So a word is looked up once in each
// segment, writing and expiry touch one segment at a time, a job takes two bytes
// for a word that it shares, and the pages that are touched are few however long the
// history is.
//
// # Goroutines and errors
//
// Run has the writer, which alone changes the file, the fetcher and the scrubber. Whatever
// is wrong with the file is never the end of the replica: Raft does not need it.
package history
