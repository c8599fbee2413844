package sequencer_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// pure submits a chain of pure tasks with the given keys.
func pure(t *testing.T, s *sequencer.Sequencer, name, owner string, lasts time.Duration, keys ...string) fsm.JobID {
	t.Helper()
	h := &dtaskv1.JobHeader{Name: name, Owner: owner, Policies: []*dtaskv1.TaskPolicy{{Type: "x", TimeoutMs: 60_000, ReuseMs: lasts.Milliseconds()}}}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	b := fsm.NewChunkBuilder(0)
	for i, key := range keys {
		body, err := proto.Marshal(&dtaskv1.TaskBody{ReuseKey: key})
		if err != nil {
			t.Fatal(err)
		}
		var deps []uint32
		if i > 0 {
			deps = []uint32{uint32(i - 1)}
		}
		b.Add(fmt.Sprintf("t%d", i), 0, deps, body)
	}
	c := b.Chunk()
	sub := sequencer.Submission{Key: name, Header: raw, Total: uint32(len(keys)), Chunks: []*fsm.Chunk{c}, Sum: c.Sum(0)}
	copy(sub.Digest[:], name)
	r, err := s.Submit(t.Context(), sub)
	if err != nil {
		t.Fatal(err)
	}
	return r.ID
}

func TestAPureTaskRunsOncePerKeyUntilItsResultExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, end := c.lead()
		ran := make(chan fsm.TaskRef, 100)
		answer := func(it fsm.AssignItem) *dtaskv1.Outcome {
			ran <- it.TaskRef
			return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, Result: []byte("r")}
		}
		attachWorker(t, s, "w", "a", 2, answer)
		play := func(name, owner string, want int) {
			t.Helper()
			id := pure(t, s, name, owner, time.Hour, "a", "b", "a")
			if job := c.awaitEnd(id); job.State != fsm.JobCompleted {
				t.Errorf("%s: the job is %v", name, job.State)
			}
			if got := len(ran); got != want {
				t.Errorf("%s: %d tasks ran, want %d", name, got, want)
			}
			for len(ran) > 0 {
				<-ran
			}
			var r fsm.Result
			c.machine.Read(func(st *fsm.State, _ uint64) { r = st.Result(fsm.TaskRef{Job: id, Index: 2}) })
			if string(r.Data) != "r" || r.ReusedJob == 0 || c.task(id, 2).Attempt != 0 {
				t.Errorf("%s: the last task has result %+v after %d attempts", name, r, c.task(id, 2).Attempt)
			}
		}
		play("first", "ada", 2)
		play("again", "ada", 0)
		play("another's", "bob", 2)
		_ = end()
		s, _ = c.lead()
		attachWorker(t, s, "w", "a", 2, answer)
		play("under a new leader", "ada", 0)
		<-time.After(time.Hour)
		play("later", "ada", 2)
	})
}

func TestResultsThatExpireFirstAreEvicted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *sequencer.Config) { cfg.MaxResults = 4 }
		s, _ := c.lead()
		attachWorker(t, s, "w", "a", 1, succeed)
		for i, lasts := range []int{5, 1, 4, 3, 6, 7} {
			c.awaitEnd(pure(t, s, fmt.Sprint(i), "ada", time.Duration(lasts)*time.Minute, fmt.Sprint(i)))
		}
		count := func() (n int) {
			c.machine.Read(func(st *fsm.State, _ uint64) { n, _ = st.Results() })
			return n
		}
		if n := count(); n != 4 {
			t.Errorf("%d cached results, want 4", n)
		}
		<-time.After(time.Hour)
		if n := count(); n != 0 {
			t.Errorf("%d cached results after their expiry", n)
		}
	})
}
