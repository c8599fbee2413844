package index

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"pgregory.net/rapid"

	"github.com/dtask/dtask/fsm"
)

// comparePostings compares the bytes of postings.
func comparePostings(a, b posting) int {
	return cmp.Or(
		cmp.Compare(binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(b[:8])),
		cmp.Compare(binary.BigEndian.Uint64(a[8:]), binary.BigEndian.Uint64(b[8:])),
	)
}

// Sorting by group gives the same as sorting all postings.
func TestPostingsAreSortedByTheirBytes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		jobs := rapid.OneOf(rapid.Uint64Range(1, 40), rapid.Uint64Range(65530, 65545), rapid.Uint64())
		terms := rapid.SampledFrom([]Term{{}, {1}, {0, 255}, newTerm(termName, "a"), newTerm(termLabel, "k", "v")})
		var postings []posting
		for range rapid.IntRange(0, 100).Draw(rt, "postings") {
			postings = append(postings, newPosting(terms.Draw(rt, "term"), fsm.JobID(jobs.Draw(rt, "job"))))
		}
		want := slices.Clone(postings)
		slices.SortFunc(want, comparePostings)
		if got := sortPostings(postings); !slices.Equal(got, want) {
			rt.Fatalf("got %x, want %x", got, want)
		}
	})
}

// emptyPostings replaces the bucket of postings by an empty one.
func emptyPostings(tx *bbolt.Tx) error {
	if err := tx.DeleteBucket(bucketPostings); err != nil && !errors.Is(err, bolterrors.ErrBucketNotFound) {
		return err
	}
	return Create(tx)
}

// The index is a set of postings, in whatever order they are added and removed.
func TestTheIndexIsASetOfPostings(t *testing.T) {
	t.Parallel()
	db := openBolt(t)
	jobs := rapid.OneOf(rapid.Uint64Range(1, 40), rapid.Uint64Range(65530, 65545), rapid.Uint64Range(1, 3000))
	rapid.Check(t, func(rt *rapid.T) {
		tx, err := db.Begin(true)
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }() // whichever it is by then
		if err := emptyPostings(tx); err != nil {
			rt.Fatal(err)
		}
		x := Open(tx, nil)
		terms := []Term{newTerm(termName, "a"), newTerm(termName, "b"), newTerm(termState, "a")}
		model := make(map[posting]bool)
		for range rapid.IntRange(1, 8).Draw(rt, "transactions") {
			var postings []posting
			term := rapid.SampledFrom(terms).Draw(rt, "term")
			if rapid.IntRange(0, 3).Draw(rt, "run") == 0 {
				first := jobs.Draw(rt, "first")
				for n := range rapid.Uint64Range(1, 1500).Draw(rt, "of") {
					postings = append(postings, newPosting(term, fsm.JobID(first+n)))
				}
			}
			for _, n := range rapid.SliceOfN(jobs, 0, 20).Draw(rt, "jobs") {
				postings = append(postings, newPosting(rapid.SampledFrom(terms).Draw(rt, "term"), fsm.JobID(n)))
			}
			change, add := x.addPostings, true
			if rapid.IntRange(0, 2).Draw(rt, "remove") == 0 {
				change, add = x.removePostings, false
			}
			if err := change(slices.Compact(sortPostings(slices.Clone(postings)))); err != nil {
				rt.Fatal(err)
			}
			for _, p := range postings {
				if delete(model, p); add {
					model[p] = true
				}
			}
		}
		got := readPostings(rt, x.postings)
		if want := sortPostings(slices.Collect(maps.Keys(model))); !slices.Equal(got, want) {
			rt.Fatalf("the index has %d postings, want %d", len(got), len(want))
		}
		if err := tx.Commit(); err != nil {
			rt.Fatal(err)
		}
		tx, err = db.Begin(false)
		if err != nil {
			rt.Fatal(err)
		}
		for range 5 {
			asked := rapid.SliceOfNDistinct(jobs, 1, 20, rapid.ID[uint64]).Draw(rt, "asked")
			slices.Sort(asked)
			f := &finder{term: rapid.SampledFrom(terms).Draw(rt, "term"), cursor: tx.Bucket(bucketPostings).Cursor()}
			for i, n := range slices.Backward(asked) {
				first := n >> segmentBits << segmentBits
				if i == len(asked)-1 || first != asked[i+1]>>segmentBits<<segmentBits {
					f.begin(fsm.JobID(first))
				}
				want, found := n, false
				for ; want+1 > first; want-- {
					if found = model[newPosting(f.term, fsm.JobID(want))]; found || want == 0 {
						break
					}
				}
				if number, ok, _ := f.lower(uint16(n)); ok != found || ok && first+uint64(number) != want {
					rt.Fatalf("at or below %d: %d %v, want %d %v", n, number, ok, want, found)
				}
			}
		}
	})
}

// readPostings reads all lists and checks their form.
func readPostings(tb rapid.TB, postings *bbolt.Bucket) []posting {
	tb.Helper()
	var all []posting
	for k, v := range keys(postings) {
		if len(k) != postingSize {
			tb.Fatalf("key of %d bytes", len(k))
		}
		l, ok := readList(k[:groupSize], k, v)
		if !ok || len(l.numbers) > maxList {
			tb.Fatalf("list of %d jobs, %v", len(l.numbers), ok)
		}
		for _, n := range l.numbers {
			all = append(all, postingIn([groupSize]byte(k), n))
		}
	}
	if !slices.IsSortedFunc(all, comparePostings) {
		tb.Fatal("lists overlap")
	}
	return all
}

// A job that is stored again leaves the index first, so that a transaction may empty
// whole pages of it.
func TestPagesThatBecomeEmptyAreSkipped(t *testing.T) {
	t.Parallel()
	db := openBolt(t)
	var postings []posting
	for n := range fsm.JobID(2000) {
		postings = append(postings, newPosting(newTerm(termName, fmt.Sprint(n)), n+1), newPosting(newTerm(termState, "a"), n+1))
	}
	sortPostings(postings)
	for name, change := range map[string]func(x Index) error{
		"all are removed and added": func(x Index) error {
			return errors.Join(x.removePostings(postings), x.addPostings(postings))
		},
		"all but the first are removed, one by one from the end": func(x Index) error {
			for _, p := range slices.Backward(postings[1:]) {
				if err := x.removePostings([]posting{p}); err != nil {
					return err
				}
			}
			return x.addPostings(postings[1:])
		},
		"the middle is removed and added": func(x Index) error {
			return errors.Join(x.removePostings(postings[100:3900]), x.addPostings(postings[100:3900]))
		},
	} {
		if err := db.Update(func(tx *bbolt.Tx) error {
			if err := emptyPostings(tx); err != nil {
				return err
			}
			return Open(tx, nil).addPostings(postings)
		}); err != nil {
			t.Fatal(err)
		}
		if err := db.Update(func(tx *bbolt.Tx) error { return change(Open(tx, nil)) }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := db.View(func(tx *bbolt.Tx) error {
			if n := len(readPostings(t, tx.Bucket(bucketPostings))); n != len(postings) {
				t.Errorf("%s: the index has %d postings, want %d", name, n, len(postings))
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
}
