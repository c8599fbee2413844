package index

import (
	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/coordinator/history/format"
	"github.com/dtask/dtask/fsm"
)

var (
	bucketPostings = []byte("index")
	bucketTimes    = []byte("times")
)

// Index is the index as one transaction sees it.
type Index struct {
	jobs, postings, times *bbolt.Bucket
}

// Create creates the buckets of the index if they don't exist.
func Create(tx *bbolt.Tx) error {
	for _, name := range [][]byte{bucketPostings, bucketTimes} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return nil
}

// Open returns the index of a file in which Create was called. jobs is the bucket
// whose keys are those of the jobs (format.JobKey).
func Open(tx *bbolt.Tx, jobs *bbolt.Bucket) Index {
	return Index{jobs: jobs, postings: tx.Bucket(bucketPostings), times: tx.Bucket(bucketTimes)}
}

// Entry is what the index knows about a job.
type Entry struct {
	Job         fsm.JobID
	SubmittedMS int64
	Terms       []Term
}

// NewEntry returns the entry of a job. Its terms are appended to memory, which may
// be nil.
func NewEntry(h *fsm.Head, memory []Term) Entry {
	return Entry{Job: h.ID, SubmittedMS: h.SubmittedMS, Terms: appendTerms(memory, h)}
}

// Add adds jobs. Those that are in the index already stay.
func (x Index) Add(entries []Entry) error {
	if err := x.widen(entries); err != nil {
		return err
	}
	return x.addPostings(sortPostings(postingsOf(entries)))
}

// Remove removes jobs. It is called after a job left the bucket of jobs or was
// stored there again, and is no error for a job that is not in the index.
func (x Index) Remove(entries []Entry) error {
	if err := x.dropBlocks(entries); err != nil {
		return err
	}
	return x.removePostings(sortPostings(postingsOf(entries)))
}

// Verify returns a *format.DamageError if a job can't be found by one of its terms
// or its time.
func (x Index) Verify(e Entry) error {
	if err := x.verifyTimes(e); err != nil {
		return err
	}
	return x.verifyPostings(e)
}

func postingsOf(entries []Entry) []posting {
	postings := make([]posting, 0, 4*len(entries))
	for i := range entries {
		for _, t := range entries[i].Terms {
			postings = append(postings, newPosting(t, entries[i].Job))
		}
	}
	return postings
}

// lastBelow returns the newest job below an ID.
func lastBelow(jobs *bbolt.Cursor, id fsm.JobID) (last fsm.JobID, ok bool) {
	k, _ := jobs.Seek(format.JobKey(id))
	if k == nil {
		k, _ = jobs.Last()
	} else {
		k, _ = jobs.Prev()
	}
	return format.ParseJobKey(k)
}
