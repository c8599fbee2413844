// Package index finds the jobs of the history file by name, owner, label, state and
// time of submission. It lives in two buckets of the file, and reads the bucket of
// jobs to learn which jobs exist; history owns that one and the transactions.
//
//	postings   segment, term, first job → the other jobs of the list
//	times      block of jobs → first and last time of submission
//
// A posting states that a job has a term. A segment is 65,536 consecutive job IDs.
// The jobs of one segment with one term are stored in lists of up to 512 jobs, so
// that a job costs two bytes for a term that it shares, a search looks a term up
// once per segment, and writing and expiry touch one segment at a time however
// long the history is.
//
// A block is 1,024 or 65,536 consecutive job IDs. A search by time skips the blocks
// that were submitted before or after the requested time.
//
// The package starts no goroutine. Its errors are [format.DamageError] and those
// of bbolt.
package index
