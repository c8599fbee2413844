package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"
)

// signals returns which signals a subscription has received, and takes them.
func signals(s *Subscription) (got string) {
	select {
	case <-s.Changed:
		got = "changed"
	default:
	}
	select {
	case <-s.Ended:
		return got + " ended"
	default:
		return got
	}
}

// subscribed is a machine with two jobs of two tasks that depend on each other, and a
// worker.
type subscribed struct {
	*testing.T

	*Machine
}

func newSubscribed(t *testing.T) subscribed {
	t.Helper()
	m := subscribed{t, NewMachine()}
	m.ops(&StartTerm{Term: 1, ServerID: "n1"}, worker(1))
	m.ops(chain(2).submit(1, "k1", 10)...)
	m.ops(chain(2).submit(2, "k2", 10)...)
	return m
}

// ops applies operations in one entry.
func (m subscribed) ops(ops ...Op) {
	m.Helper()
	a, ok := m.Apply(m.Index()+1, Encode(nil, Entry{Ops: ops})).(Applied)
	if !ok || a.Rejected != Accepted {
		m.Fatalf("%T: got %+v", ops[0], a)
	}
}

func (m subscribed) want(what string, s *Subscription, want string) {
	m.Helper()
	if got := signals(s); got != want {
		m.Errorf("%s: signaled %q, want %q", what, got, want)
	}
}

func TestASubscriptionSignalsChangesAndEndsOfItsJobs(t *testing.T) {
	t.Parallel()
	m := newSubscribed(t)
	first, both := m.Subscribe(1), m.Subscribe(2, 1, 1, 99)
	defer first.Close()
	defer both.Close()
	m.want("at the start", first, "")

	h := hold(2, 0, 1, 1)
	m.ops(&Assign{Items: []AssignItem{AssignItem(h)}})
	m.want("another job was assigned", first, "")
	m.want("the second job was assigned", both, "changed")
	m.ops(worker(2))
	m.want("a worker was registered", both, "")

	m.ops(complete(h))
	m.ops(&CancelJob{Job: 2, Reason: "r"})
	m.want("several changes and an end", both, "changed ended")
	m.want("another job has ended", first, "")

	m.ops(&CancelJob{Job: 1, Reason: "r"})
	m.want("the first job has ended", both, "changed ended")
	m.want("the job has ended", first, "changed ended")
	m.want("received twice", first, "")
}

func TestAClosedSubscriptionIsForgotten(t *testing.T) {
	t.Parallel()
	for order := range 6 { // of three subscriptions to the same jobs, in all orders
		m := newSubscribed(t)
		open := []*Subscription{m.Subscribe(1, 2), m.Subscribe(2, 1), m.Subscribe(1)}
		closing := slices.Clone(open)
		slices.Reverse(closing[order%2:])
		closing[0], closing[order/2] = closing[order/2], closing[0]
		for i, s := range closing {
			s.Close()
			s.Close()
			m.ops(&Update{Job: 1, Set: SetNotBefore, NotBeforeMS: int64(1000 + i)})
			for _, o := range open {
				want := ""
				if slices.Contains(closing[i+1:], o) {
					want = "changed"
				}
				m.want(fmt.Sprintf("order %d, %d closed", order, i+1), o, want)
			}
		}
		if m.subscriptions.any() || m.subscriptions.links != nil {
			t.Error("a closed subscription uses memory")
		}
	}
}

func TestARestoredSnapshotIsSignaledToAll(t *testing.T) {
	t.Parallel()
	m := newSubscribed(t)
	m.ops(&CancelJob{Job: 1, Reason: "r"})
	var image bytes.Buffer
	if err := m.Snapshot().Persist(&image); err != nil {
		t.Fatal(err)
	}
	behind := newSubscribed(t)
	one, two := behind.Subscribe(1), behind.Subscribe(2, 1)
	defer one.Close()
	defer two.Close()
	if err := behind.Restore(&image); err != nil {
		t.Fatal(err)
	}
	behind.want("restored", one, "changed ended")
	behind.want("restored", two, "changed ended")
	behind.ops(&CancelJob{Job: 2, Reason: "r"})
	behind.want("after the snapshot", one, "")
	behind.want("after the snapshot", two, "changed ended")
}

// A subscriber that reads the state after subscribing misses no end, whenever it
// subscribes.
func TestNoEndIsMissedBetweenSubscribingAndReading(t *testing.T) {
	t.Parallel()
	m := newSubscribed(t)
	const jobs = 300
	for id := JobID(3); id <= jobs; id++ {
		m.ops(chain(2).submit(id, fmt.Sprint("k", id), 10)...)
	}
	var all errgroup.Group
	for id := JobID(1); id <= jobs; id++ {
		all.Go(func() error {
			s := m.Subscribe(id)
			defer s.Close()
			for {
				ended := false
				m.Read(func(st *State, _ uint64) {
					state, _, ok := st.Progress(id)
					ended = !ok || state.Terminal()
				})
				if ended {
					return nil
				}
				<-s.Ended
			}
		})
	}
	for id := JobID(1); id <= jobs; id++ {
		m.ops(&CancelJob{Job: id, Reason: "r"})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	if m.subscriptions.any() {
		t.Error("a closed subscription uses memory")
	}
}
