package index

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/dtask/dtask/coordinator/history/format"
	"github.com/dtask/dtask/fsm"
)

var bucketJobs = []byte("jobs")

func openBolt(t *testing.T) *bbolt.DB {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "index.db"), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// newIndex creates an empty index.
func newIndex(tb rapid.TB, tx *bbolt.Tx) Index {
	tb.Helper()
	jobs, err := tx.CreateBucketIfNotExists(bucketJobs)
	if err != nil {
		tb.Fatal(err)
	}
	if err := Create(tx); err != nil {
		tb.Fatal(err)
	}
	return Open(tx, jobs)
}

// keys iterates over the keys of a bucket.
func keys(b *bbolt.Bucket) func(yield func(k, v []byte) bool) {
	return func(yield func(k, v []byte) bool) {
		c := b.Cursor()
		for k, v := c.First(); k != nil; k, v = c.Next() {
			if !yield(k, v) {
				return
			}
		}
	}
}

// A search by time skips no matching job however clocks and IDs jump and whatever is
// removed, and skips blocks without one.
func TestASearchByTimeSkipsNoMatchingJob(t *testing.T) {
	t.Parallel()
	db := openBolt(t)
	ids := rapid.OneOf(rapid.Uint64Range(1, 3000), rapid.Uint64Range(65000, 70000), rapid.Uint64Range(1, 1<<20))
	times := rapid.OneOf(rapid.Int64Range(1, 1000), rapid.Int64Range(400, 420))
	rapid.Check(t, func(rt *rapid.T) {
		tx, err := db.Begin(true)
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		x := newIndex(rt, tx)
		model := make(map[fsm.JobID]int64)
		for range rapid.IntRange(1, 5).Draw(rt, "transactions") {
			var added, removed []Entry
			for _, n := range rapid.SliceOfNDistinct(ids, 1, 20, rapid.ID[uint64]).Draw(rt, "jobs") {
				e := Entry{Job: fsm.JobID(n), SubmittedMS: times.Draw(rt, "submitted")}
				added, model[e.Job] = append(added, e), e.SubmittedMS
				if err := x.jobs.Put(format.JobKey(e.Job), []byte("a job")); err != nil {
					rt.Fatal(err)
				}
			}
			if err := x.Add(added); err != nil {
				rt.Fatal(err)
			}
			for _, id := range slices.Sorted(maps.Keys(model)) {
				if err := x.Verify(Entry{Job: id, SubmittedMS: model[id]}); err != nil {
					rt.Fatal(err)
				}
				if rapid.IntRange(0, 2).Draw(rt, "remove") == 0 {
					removed = append(removed, Entry{Job: id})
				}
			}
			for _, e := range removed {
				delete(model, e.Job)
				if err := x.jobs.Delete(format.JobKey(e.Job)); err != nil {
					rt.Fatal(err)
				}
			}
			if err := x.Remove(removed); err != nil {
				rt.Fatal(err)
			}
		}
		q := &Query{Since: times.Draw(rt, "since"), Before: times.Draw(rt, "before")}
		filter := newTimeFilter(&search{Index: x, ctx: t.Context(), query: q, steps: maxSteps})
		kept := slices.Sorted(maps.Keys(model))
		next := ^fsm.JobID(0) // jobs above were skipped
		for _, id := range slices.Backward(kept) {
			matches := model[id] >= q.Since && model[id] < q.Before
			if id > next {
				if matches {
					rt.Fatalf("job %d is skipped", id)
				}
				continue
			}
			at, ok, err := filter.next(id)
			switch {
			case err != nil:
				rt.Fatal(err)
			case !ok:
				at = 0
			case model[at] == 0 || at > id:
				rt.Fatalf("from job %d to %d, which does not exist or is not below", id, at)
			}
			if next = at; matches && at != id {
				rt.Fatalf("job %d is skipped", id)
			}
		}
		for k := range keys(x.times) {
			if !slices.ContainsFunc(kept, func(id fsm.JobID) bool { return slices.Equal(k, blockKey(k[0], id)) }) {
				rt.Fatalf("an empty block has times: %x", k)
			}
		}
	})
}
