package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/fsm"
)

// board is a cluster of marks.
type board struct {
	mu     sync.Mutex
	marks  map[string][]fsm.Mark // by server id
	down   map[string]bool
	alarms []string
}

func (b *board) comparer(self string, all ...string) *Comparer {
	return NewComparer(ComparerConfig{
		ServerID: self, Logger: slog.New(slog.DiscardHandler),
		Members: func() []raftnode.Server {
			var members []raftnode.Server
			for _, id := range all {
				members = append(members, raftnode.Server{ID: id, Address: id, Voter: true})
			}
			return members
		},
		Marks: func(from uint64) []fsm.Mark { return b.from(self, from) },
		Fetch: func(_ context.Context, address string, from uint64) (string, []fsm.Mark, error) {
			b.mu.Lock()
			down := b.down[address]
			b.mu.Unlock()
			if down {
				return "", nil, errors.New("unreachable")
			}
			return address, b.from(address, from), nil
		},
		Alarm: func(message string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.alarms = append(b.alarms, message)
		},
	})
}

func (b *board) from(id string, from uint64) []fsm.Mark {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []fsm.Mark
	for _, m := range b.marks[id] {
		if m.Index >= from {
			list = append(list, m)
		}
	}
	return list
}

// run makes marks from index 1 on, one for each letter.
func run(letters string) []fsm.Mark {
	var list []fsm.Mark
	for i, d := range letters {
		list = append(list, fsm.Mark{Index: uint64(i) + 1, Digest: uint64(d)})
	}
	return list
}

func TestReplicasThatDifferAreFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		marks    []string // of n1, n2, …; "-" = does not answer
		diverged bool     // n1 must stop
		alarm    bool
	}{
		{"all agree", []string{"abcd", "abcd", "abcd"}, false, false},
		{"one lags", []string{"abcd", "abcd", "ab"}, false, false},
		{"this one lags", []string{"ab", "abcd", "abcd"}, false, false},
		{"this one differs", []string{"abxy", "abcd", "abcd"}, true, false},
		{"this one differs and leads", []string{"abxyz", "abcd", "abc"}, true, false},
		{"another differs", []string{"abcd", "abcd", "abxy"}, false, false},
		{"another differs, this one lags", []string{"ab", "abcd", "abxy"}, false, true},
		{"two of two differ", []string{"abc", "abx"}, false, true},
		{"two answer and differ", []string{"abcd", "abxy", "-"}, false, true},
		{"two answer and agree", []string{"abcd", "abcd", "-"}, false, false},
		{"nobody answers", []string{"abcd", "-", "-"}, false, false},
		{"three ways", []string{"abc", "abx", "aby"}, false, true},
		{"two of five differ from another two", []string{"abc", "abc", "abx", "abx", "-"}, false, true},
		{"first one differs, then this one", []string{"abcdz", "abcde", "abcde", "abcde", "axyzu"}, true, false},
		{"first one differs, then two", []string{"abcdz", "abcdy", "abcde", "abcde", "axyzu"}, false, true},
		{"alone", []string{"abc"}, false, false},
		{"nothing yet", []string{"", "abc", "abc"}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := &board{marks: make(map[string][]fsm.Mark), down: make(map[string]bool)}
			var ids []string
			for i, digests := range c.marks {
				id := fmt.Sprint("n", i+1)
				ids = append(ids, id)
				b.marks[id], b.down[id] = run(digests), digests == "-"
			}
			err := b.comparer("n1", ids...).compare(t.Context())
			var diverged *DivergedError
			if errors.As(err, &diverged) != c.diverged || (err == nil) == c.diverged {
				t.Errorf("got %v, want diverged %v", err, c.diverged)
			}
			if (len(b.alarms) > 0) != c.alarm {
				t.Errorf("got the alarms %q, want one: %v", b.alarms, c.alarm)
			}
		})
	}
}

func TestAnAlarmEndsWhenAMajorityAgreesAgain(t *testing.T) {
	t.Parallel()
	b := &board{marks: map[string][]fsm.Mark{"n1": run("abc"), "n2": run("abx")}, down: map[string]bool{"n3": true}}
	c := b.comparer("n1", "n1", "n2", "n3")
	compare := func(alarms int) {
		t.Helper()
		if err := c.compare(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(b.alarms) != alarms {
			t.Fatalf("got the alarms %q, want %d", b.alarms, alarms)
		}
	}
	compare(1)
	compare(1) // once is enough
	b.down["n2"] = true
	compare(1) // nobody contradicts, and nobody agrees
	b.down["n3"] = false
	b.marks["n1"], b.marks["n3"] = run("abcd"), run("abcd")
	compare(2)
	if b.alarms[0] == "" || b.alarms[1] != "" {
		t.Errorf("got the alarms %q", b.alarms)
	}
}

func TestTheComparerNoticesAFlippedField(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		replicas := make(map[string]*replica)
		for _, id := range []string{"n1", "n2", "n3"} {
			replicas[id] = setup(t)
		}
		b := &board{}
		c := b.comparer("n1", "n1", "n2", "n3")
		c.cfg.Marks = replicas["n1"].machine.Marks
		c.cfg.Fetch = func(_ context.Context, address string, from uint64) (string, []fsm.Mark, error) {
			return address, replicas[address].machine.Marks(from), nil
		}
		everywhere := func(f func(r *replica)) {
			for _, r := range replicas {
				f(r)
			}
		}
		everywhere(func(r *replica) { r.submit(t) })
		ended := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // one that notices nothing would keep virtual time going
		defer cancel()
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(10 * time.Second)
		replicas["n1"].machine.Flip(fsm.TaskRef{Job: 1, Index: 1})
		everywhere(func(r *replica) { r.op(t, &fsm.CancelJob{Job: 1, Reason: "r"}) })
		flipped := time.Now()
		err := <-ended
		var diverged *DivergedError
		if !errors.As(err, &diverged) || time.Since(flipped) > 2*time.Second {
			t.Errorf("got %v after %s", err, time.Since(flipped))
		}
	})
}

func TestAClusterAtRestComparesNothing(t *testing.T) {
	t.Parallel()
	b := &board{marks: map[string][]fsm.Mark{"n1": run("abc"), "n2": run("abc"), "n3": run("ab")}, down: make(map[string]bool)}
	c := b.comparer("n2", "n1", "n2", "n3")
	var asked []uint64
	fetch := c.cfg.Fetch
	var mu sync.Mutex // guards asked
	c.cfg.Fetch = func(ctx context.Context, address string, from uint64) (string, []fsm.Mark, error) {
		mu.Lock()
		asked = append(asked, from)
		mu.Unlock()
		return fetch(ctx, address, from)
	}
	compare := func(want ...uint64) {
		t.Helper()
		asked = nil
		if err := c.compare(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(asked, want) {
			t.Errorf("asked for the digests from %v on, want %v", asked, want)
		}
	}
	compare(1, 1)
	compare()
	b.marks["n2"], b.marks["n1"] = run("abcd"), run("abcx")
	compare(3, 3) // they differ, and n3 has not got as far
	compare(3, 3)
	if len(b.alarms) != 1 {
		t.Fatalf("got the alarms %q, want one", b.alarms)
	}
	b.marks["n2"], b.marks["n3"] = run("abcde"), run("abcde")
	compare(3, 3)
	compare(3, 3) // n1 is damaged: what it says is looked at again and again
}
