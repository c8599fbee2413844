package history

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/dtask/dtask/fsm"
)

// A listing by time passes over no job that it looks for, wherever clocks and numbers jump
// and whatever goes; and over blocks that have none.
func TestNoJobIsPassedOver(t *testing.T) {
	t.Parallel()
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "times.db"), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	numbers := rapid.OneOf(rapid.Uint64Range(1, 3000), rapid.Uint64Range(65000, 70000), rapid.Uint64Range(1, 1<<20))
	times := rapid.OneOf(rapid.Int64Range(1, 1000), rapid.Int64Range(400, 420))
	rapid.Check(t, func(rt *rapid.T) {
		tx, err := db.Begin(true)
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		jobs, err := tx.CreateBucket(bucketJobs)
		if err != nil {
			rt.Fatal(err)
		}
		model := make(map[fsm.JobID]int64)
		put := func(noted bool) {
			var list []encoded
			for _, n := range rapid.SliceOfNDistinct(numbers, 1, 20, rapid.ID[uint64]).Draw(rt, "jobs") {
				e := encoded{Place: Place{Job: fsm.JobID(n)}, submitted: times.Draw(rt, "submitted")}
				list, model[e.Job] = append(list, e), e.submitted
				if err := jobs.Put(jobKey(e.Job), []byte("a job")); err != nil {
					rt.Fatal(err)
				}
			}
			if !noted {
				return
			}
			if err := addTimes(tx, list); err != nil {
				rt.Fatal(err)
			}
		}
		if rapid.Bool().Draw(rt, "of an older format") {
			put(false)
		}
		if err := createTimes(tx); err != nil {
			rt.Fatal(err)
		}
		for range rapid.IntRange(1, 4).Draw(rt, "transactions") {
			put(true)
			var gone []fsm.JobID
			for _, id := range slices.Sorted(maps.Keys(model)) {
				if rapid.IntRange(0, 2).Draw(rt, "goes") == 0 {
					gone = append(gone, id)
				}
			}
			for _, id := range gone {
				delete(model, id)
				if err := jobs.Delete(jobKey(id)); err != nil {
					rt.Fatal(err)
				}
			}
			if err := dropTimes(tx, gone); err != nil {
				rt.Fatal(err)
			}
		}
		q := &Query{Since: times.Draw(rt, "since"), Before: times.Draw(rt, "before")}
		l := &lister{ctx: t.Context(), tx: tx, q: q, left: maxSteps}
		line, err := newTimeline(l)
		if err != nil {
			rt.Fatal(err)
		}
		kept := slices.Sorted(maps.Keys(model))
		next := lastJob // what is above was passed over
		for _, id := range slices.Backward(kept) {
			wanted := model[id] >= q.Since && model[id] < q.Before
			if id > next {
				if wanted {
					rt.Fatalf("job %d is passed over", id)
				}
				continue
			}
			at, ok, err := line.next(id)
			switch {
			case err != nil:
				rt.Fatal(err)
			case !ok:
				at = 0
			case model[at] == 0 || at > id:
				rt.Fatalf("from job %d to %d, which is none below", id, at)
			}
			if next = at; wanted && at != id {
				rt.Fatalf("job %d is passed over", id)
			}
		}
		for k := range entries(tx.Bucket(bucketTimes)) {
			if slices.Equal(k, timesFromKey) {
				continue
			}
			if !slices.ContainsFunc(kept, func(id fsm.JobID) bool { return slices.Equal(k, timeKey(k[0], id)) }) {
				rt.Fatalf("a block without jobs has times: %x", k)
			}
		}
	})
}

// What was written before there were times is listed by time, and so is what comes then.
func TestAFileOfTheFormatBeforeIsListedByTime(t *testing.T) {
	t.Parallel()
	l := filled(t, 20)
	path := filepath.Join(t.TempDir(), "history.db")
	r := l.replica(Config{Path: path}).apply().sync()
	r.stop()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bbolt.Tx) error {
		if err := tx.DeleteBucket(bucketTimes); err != nil {
			return err
		}
		value, err := opened(metaKey, tx.Bucket(bucketMeta).Get(metaKey))
		if err != nil {
			return err
		}
		value = append([]byte{formatBefore}, value[1:]...)
		return tx.Bucket(bucketMeta).Put(metaKey, sealed(metaKey, value))
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	middle := l.now
	again := l.replica(Config{Path: path}).apply().sync()
	for range 5 {
		id := l.submit(shape{name: "later", tasks: 1, state: fsm.JobCompleted})
		l.do(&fsm.Archive{IDs: []fsm.JobID{id}})
	}
	again.apply().sync()
	again.check(Query{Since: middle}, Query{Before: middle}, Query{Since: middle - 10, Before: middle + 10})
	if n := again.Stats().Damaged; n != 0 {
		t.Errorf("%d files were set aside", n)
	}
}
