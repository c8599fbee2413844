package history

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"pgregory.net/rapid"

	"github.com/dtask/dtask/fsm"
)

// comparePosts is the order of their bytes.
func comparePosts(a, b post) int {
	return cmp.Or(
		cmp.Compare(binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(b[:8])),
		cmp.Compare(binary.BigEndian.Uint64(a[8:]), binary.BigEndian.Uint64(b[8:])),
	)
}

// Sorting group by group gives what sorting all of them gives.
func TestPostsAreSortedByTheirBytes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		jobs := rapid.OneOf(rapid.Uint64Range(1, 40), rapid.Uint64Range(65530, 65545), rapid.Uint64())
		words := rapid.SampledFrom([]word{{}, {1}, {0, 255}, makeWord(wordName, "a"), makeWord(wordLabel, "k", "v")})
		var posts []post
		for range rapid.IntRange(0, 100).Draw(rt, "posts") {
			posts = append(posts, makePost(words.Draw(rt, "word"), fsm.JobID(jobs.Draw(rt, "job"))))
		}
		want := slices.Clone(posts)
		slices.SortFunc(want, comparePosts)
		if got := sorted(posts); !slices.Equal(got, want) {
			rt.Fatalf("got %x, want %x", got, want)
		}
	})
}

// The index is a set of posts, in whatever order they come and go.
func TestTheIndexIsASetOfPosts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "index.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	jobs := rapid.OneOf(
		rapid.Uint64Range(1, 40), rapid.Uint64Range(65530, 65545), rapid.Uint64Range(1, 3000),
	)
	rapid.Check(t, func(rt *rapid.T) {
		tx, err := db.Begin(true)
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }() // whichever it is by then
		if err := tx.DeleteBucket(bucketIndex); err != nil && !errors.Is(err, bolterrors.ErrBucketNotFound) {
			rt.Fatal(err)
		}
		index, err := tx.CreateBucket(bucketIndex)
		if err != nil {
			rt.Fatal(err)
		}
		words := []word{makeWord(wordName, "a"), makeWord(wordName, "b"), makeWord(wordState, "a")}
		twin := make(map[post]bool)
		for range rapid.IntRange(1, 8).Draw(rt, "transactions") {
			var posts []post
			w := rapid.SampledFrom(words).Draw(rt, "word")
			if rapid.IntRange(0, 3).Draw(rt, "run") == 0 {
				first := jobs.Draw(rt, "first")
				for n := range rapid.Uint64Range(1, 1500).Draw(rt, "of") {
					posts = append(posts, makePost(w, fsm.JobID(first+n)))
				}
			}
			for _, n := range rapid.SliceOfN(jobs, 0, 20).Draw(rt, "jobs") {
				posts = append(posts, makePost(rapid.SampledFrom(words).Draw(rt, "word"), fsm.JobID(n)))
			}
			change, there := addPosts, true
			if rapid.IntRange(0, 2).Draw(rt, "remove") == 0 {
				change, there = removePosts, false
			}
			if err := change(index, slices.Compact(sorted(slices.Clone(posts)))); err != nil {
				rt.Fatal(err)
			}
			for _, p := range posts {
				if delete(twin, p); there {
					twin[p] = true
				}
			}
		}
		got := readPosts(rt, index)
		if want := sorted(slices.Collect(maps.Keys(twin))); !slices.Equal(got, want) {
			rt.Fatalf("the index has %d posts, want %d", len(got), len(want))
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
			f := &finder{word: rapid.SampledFrom(words).Draw(rt, "word"), cursor: tx.Bucket(bucketIndex).Cursor()}
			for i, n := range slices.Backward(asked) {
				first := n >> segmentBits << segmentBits
				if i == len(asked)-1 || first != asked[i+1]>>segmentBits<<segmentBits {
					f.begin(fsm.JobID(first))
				}
				want, found := n, false
				for ; want+1 > first; want-- {
					if found = twin[makePost(f.word, fsm.JobID(want))]; found || want == 0 {
						break
					}
				}
				if low, ok, _ := f.lower(uint16(n)); ok != found || ok && first+uint64(low) != want {
					rt.Fatalf("at or below %d: %d %v, want %d %v", n, low, ok, want, found)
				}
			}
		}
	})
}

// readPosts reads all lists and checks their form.
func readPosts(tb rapid.TB, index *bbolt.Bucket) []post {
	tb.Helper()
	var all []post
	for k, v := range entries(index) {
		if len(k) != postSize {
			tb.Fatalf("key of %d bytes", len(k))
		}
		l, ok := readList(k[:groupSize], k, v)
		if !ok || len(l.ids) > mostInList {
			tb.Fatalf("list of %d jobs, %v", len(l.ids), ok)
		}
		for _, id := range l.ids {
			p := post(k)
			p[groupSize], p[groupSize+1] = byte(id>>8), byte(id)
			all = append(all, p)
		}
	}
	if !slices.IsSortedFunc(all, comparePosts) {
		tb.Fatal("lists overlap")
	}
	return all
}

// TestPagesThatBecomeEmptyAreNoTrap: what is stored over leaves the index first, and a
// transaction may leave whole pages of it empty.
func TestPagesThatBecomeEmptyAreNoTrap(t *testing.T) {
	t.Parallel()
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "index.db"), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	var posts []post
	for n := range fsm.JobID(2000) {
		posts = append(posts, makePost(makeWord(wordName, fmt.Sprint(n)), n+1), makePost(makeWord(wordState, "a"), n+1))
	}
	all := func(tx *bbolt.Tx) (n int) {
		for k, v := range entries(tx.Bucket(bucketIndex)) {
			l, ok := readList(k[:groupSize], k, v)
			if !ok {
				t.Errorf("%x is no list", k)
			}
			n += len(l.ids)
		}
		return n
	}
	for what, change := range map[string]func(index *bbolt.Bucket) error{
		"all go and come back": func(index *bbolt.Bucket) error {
			return errors.Join(removePosts(index, sorted(posts)), addPosts(index, sorted(posts)))
		},
		"all but the first go, one by one from the end": func(index *bbolt.Bucket) error {
			for _, p := range slices.Backward(posts[1:]) {
				if err := removePosts(index, []post{p}); err != nil {
					return err
				}
			}
			return addPosts(index, slices.Clone(posts[1:]))
		},
		"the middle goes and comes back": func(index *bbolt.Bucket) error {
			return errors.Join(removePosts(index, slices.Clone(posts[100:3900])), addPosts(index, slices.Clone(posts[100:3900])))
		},
	} {
		sorted(posts)
		err := db.Update(func(tx *bbolt.Tx) error {
			if tx.Bucket(bucketIndex) != nil {
				if err := tx.DeleteBucket(bucketIndex); err != nil {
					return err
				}
			}
			index, err := tx.CreateBucket(bucketIndex)
			if err != nil {
				return err
			}
			return addPosts(index, slices.Clone(posts))
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Update(func(tx *bbolt.Tx) error { return change(tx.Bucket(bucketIndex)) }); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if err := db.View(func(tx *bbolt.Tx) error {
			if n := all(tx); n != len(posts) {
				t.Errorf("%s: %d posts are there, want %d", what, n, len(posts))
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
}
