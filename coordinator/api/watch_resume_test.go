package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// sink is the stream of a watch that records its messages.
type sink struct {
	grpc.ServerStream

	got []*dtaskv1.WatchJobResponse
}

func (s *sink) Send(m *dtaskv1.WatchJobResponse) error {
	s.got = append(s.got, m)
	return nil
}

// bystander is a Server around a machine, without clients.
func bystander(t interface{ Fatal(...any) }, m *fsm.Machine) *Server {
	cfg := baseConfig(m)
	cfg.Leader, cfg.Raft = func() Leader { return nil }, func() Raft { return nil }
	s, err := NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// follower is a caller that watches a job at any replica and knows only the messages.
type follower struct {
	index uint64
	job   *dtaskv1.Job
	tasks map[uint32]*dtaskv1.Task
}

// resume watches at a replica until the first change is received.
func (f *follower) resume(t *rapid.T, s *Server) {
	out := &sink{}
	w := &watch{Server: s, caller: open, id: 1, tasks: true, sent: f.index, stream: out}
	v, err := w.read()
	if err != nil {
		t.Fatal(err)
	}
	err = w.send(context.Background(), &v)
	if e, ok := errors.AsType[*Error](err); ok && e.Kind == KindCompacted {
		if len(out.got) > 0 {
			t.Fatal("got messages before COMPACTED")
		}
		*f = follower{index: 0, tasks: make(map[uint32]*dtaskv1.Task)}
		f.resume(t, s)
		return
	} else if err != nil {
		t.Fatal(err)
	}
	for n, m := range out.got {
		if m.GetMore() != (n < len(out.got)-1) || m.GetMore() && (m.GetIndex() != 0 || m.GetJob() != nil) {
			t.Fatalf("message %d of %d: got %v", n, len(out.got), m)
		}
		if m.GetIndex() == 0 && !m.GetMore() && len(m.GetTasks()) > 0 {
			t.Fatalf("got tasks in a repeat: %v", m)
		}
		for _, task := range m.GetTasks() {
			f.tasks[task.GetIndex()] = task
		}
		if m.GetIndex() > 0 {
			if m.GetIndex() <= f.index {
				t.Fatalf("index %d follows %d", m.GetIndex(), f.index)
			}
			f.index, f.job = m.GetIndex(), m.GetJob()
		}
	}
}

// check compares with the listing.
func (f *follower) check(t *rapid.T, s *Server) {
	st, _ := s.cfg.Machine.Fork()
	job, _ := st.Job(1)
	aggregated, err := s.aggregated(st, &job)
	if err != nil {
		t.Fatal(err)
	}
	f.job.Freshness = nil
	if diff := cmp.Diff((&jobView{job: job}).show(aggregated), f.job, protocmp.Transform()); diff != "" {
		t.Fatalf("job: (-listed +watched):\n%s", diff)
	}
	tasks := taskReader{st: st, job: job}
	for i := range job.Total {
		if diff := cmp.Diff(tasks.read(i), f.tasks[i], protocmp.Transform()); diff != "" {
			t.Fatalf("task %d (-listed +watched):\n%s", i, diff)
		}
	}
}

// storm makes one random operation on job 1, mostly one that is accepted.
func storm(t *rapid.T, l *memLeader) {
	st, _ := l.machine.Fork()
	i := rapid.Uint32Range(0, 3).Draw(t, "task")
	task, _ := st.Task(fsm.TaskRef{Job: 1, Index: i})
	h := held(1, i, max(task.Attempt, 1), 1)
	next := held(1, i, task.Attempt+1, 1)
	number := rapid.Uint32Range(1, 9).Draw(t, "number")
	op := rapid.SampledFrom([]fsm.Op{
		&fsm.Assign{Items: []fsm.AssignItem{fsm.AssignItem(next)}},
		&fsm.Assign{Items: []fsm.AssignItem{fsm.AssignItem(next)}},
		&fsm.Complete{Items: []fsm.CompleteItem{{HeldAttempt: h, DurationMS: 1}}},
		&fsm.Complete{Items: []fsm.CompleteItem{{HeldAttempt: h, DurationMS: 1, Result: []byte("r")}}},
		&fsm.Fail{Items: []fsm.FailItem{{HeldAttempt: h, Next: fsm.Next(1 + number%3), Due: int64(number), CountsAsRetry: true, Error: "exit 1"}}},
		&fsm.Requeue{Items: []fsm.HeldAttempt{h}},
		&fsm.RequeueLost{Items: []fsm.HeldAttempt{h}},
		&fsm.Lose{Items: []fsm.HeldAttempt{h}},
		&fsm.Due{Items: []fsm.AttemptRef{{TaskRef: h.TaskRef, Attempt: task.Attempt}}},
		&fsm.Checkpoint{HeldAttempt: h, Saved: fsm.SavedCheckpoint{Number: number, Format: fsm.DataCheckpoint, Data: []byte("c")}},
		&fsm.CancelTask{Task: h.TaskRef, Reason: "by user"},
		&fsm.CancelJob{Job: 1, Reason: "enough"},
		&fsm.Revive{Job: 1},
		&fsm.Revive{Job: 1, Tasks: []uint32{i}},
		&fsm.Purge{Job: 1},
		&fsm.Update{Job: 1, Task: i, Set: fsm.SetNotBefore, NotBeforeMS: int64(number)},
		&fsm.Update{Job: 1, WholeJob: true, Set: fsm.SetPriority, Priority: dtaskv1.Priority_PRIORITY_HIGH},
	}).Draw(t, "operation")
	l.do(func(d *fsm.EntryBuilder) fsm.Reason { return d.Do(op) })
}

// A watch that is resumed at any replica, at any time, misses nothing: its messages
// add up to what the replica lists, and indexes only increase. A replica that was
// rebuilt from a snapshot sends the changes or returns COMPACTED.
func TestAResumedWatchMissesNothingAtAnyReplica(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		first, second := fsm.NewMachine(), fsm.NewMachine()
		l := &memLeader{machine: first, also: second, nowMS: 1_000_000}
		ops := diamondLog(rapid.Bool().Draw(t, "one entry"))
		for _, entry := range ops {
			if r := l.do(func(d *fsm.EntryBuilder) (r fsm.Reason) {
				for _, op := range entry {
					r = max(r, d.Do(op))
				}
				return r
			}); r != fsm.Accepted {
				t.Fatal(r)
			}
		}
		replicas := []*Server{bystander(t, first), bystander(t, second)}
		f := &follower{tasks: make(map[uint32]*dtaskv1.Task)}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			storm(t, l)
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				var b bytes.Buffer
				if err := errors.Join(second.Snapshot().Persist(&b), second.Restore(&b)); err != nil {
					t.Fatal(err)
				}
			case 1, 2, 3, 4, 5:
				s := rapid.SampledFrom(replicas).Draw(t, "replica")
				f.resume(t, s)
				f.check(t, s)
			}
		}
	})
}

// diamondLog registers a worker and uploads job 1, in one entry or in several.
func diamondLog(once bool) [][]fsm.Op {
	b := fsm.NewChunkBuilder(0)
	for _, task := range diamond() {
		b.Add(task.GetId(), 0, task.GetDependencies(), nil)
	}
	c := b.Chunk()
	head, _ := deterministic.Marshal(header("x"))
	join := &fsm.RegisterWorker{ID: 1, Name: "w1", Incarnation: testInstance, Slots: 4, Version: "v", Address: "host"}
	ops := []fsm.Op{
		join, &fsm.BeginUpload{ID: 1, Key: "k", KeyExpires: 1, Header: head, Total: 4},
		&fsm.AddChunk{Job: 1, Chunk: c}, &fsm.SealUpload{Job: 1, Sum: c.Sum(0)},
	}
	if once {
		return [][]fsm.Op{ops}
	}
	return [][]fsm.Op{ops[:1], ops[1:2], ops[2:3], ops[3:]}
}

func TestUnchangedTasksAreNotSentAgain(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", diamond()...)
	w := r.worker(t)
	r.assign(t, held(1, 0, 1, w))
	from := r.machine.Index()
	r.submit(t, "other", task("a")) // an entry about something else
	for _, c := range []struct {
		name  string
		do    func()
		tasks []string
	}{
		{"nothing happened", func() {}, nil},
		{"a completed, b and c are ready", func() {
			got := r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason {
				return d.Complete(fsm.CompleteItem{HeldAttempt: held(1, 0, 1, w)})
			})
			if got != fsm.Accepted {
				t.Fatal(got)
			}
		}, []string{"a", "b", "c"}},
		{"b completed; d still waits for c", func() { r.complete(t, held(1, 1, 1, w), "") }, []string{"b"}},
		{"the user updated only the job", func() {
			r.leader.op(t, &fsm.Update{Job: 1, WholeJob: true, Set: fsm.SetPriority, Priority: dtaskv1.Priority_PRIORITY_LOW})
		}, []string{}},
		{"c failed permanently, and d with it", func() {
			r.assign(t, held(1, 2, 1, w))
			r.leader.op(t, &fsm.Fail{Items: []fsm.FailItem{{HeldAttempt: held(1, 2, 1, w), Next: fsm.NextFailed, Error: "no"}}})
		}, []string{"c", "d"}},
	} {
		c.do()
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := r.jobs.WatchJob(ctx, &dtaskv1.WatchJobRequest{Id: "1", FromIndex: from, WithTasks: true})
		if err != nil {
			t.Fatal(err)
		}
		got, err := stream.Recv()
		cancel()
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var names []string
		for _, task := range got.GetTasks() {
			names = append(names, task.GetId())
		}
		if diff := cmp.Diff(c.tasks, names); len(c.tasks)+len(names) > 0 && diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
		if (got.GetIndex() > from) != (c.tasks != nil) {
			t.Errorf("%s: got index %d, want above %d", c.name, got.GetIndex(), from)
		}
		from = max(from, got.GetIndex())
	}
}

func TestAJobOfManyTasksIsSentInPages(t *testing.T) {
	t.Parallel()
	r := setup(t)
	const n = 2*maxPageTasks + 7
	tasks := make([]*dtaskv1.TaskSpec, n)
	for i := range tasks {
		tasks[i] = task(fmt.Sprintf("t%d", i))
	}
	r.submit(t, "x", tasks...)
	stream, err := r.jobs.WatchJob(t.Context(), &dtaskv1.WatchJobRequest{Id: "1", WithTasks: true})
	if err != nil {
		t.Fatal(err)
	}
	next := uint32(0)
	for {
		got, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range got.GetTasks() {
			if task.GetIndex() != next {
				t.Fatalf("got task %d, want %d", task.GetIndex(), next)
			}
			next++
		}
		if !got.GetMore() {
			if next != n || got.GetIndex() == 0 || got.GetJob().GetTasksTotal() != n {
				t.Errorf("got %d tasks, index %d", next, got.GetIndex())
			}
			return
		}
	}
}

func TestARebuiltReplicaReturnsCompacted(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", task("a"), task("b"))
	known := r.machine.Index()
	r.assign(t, held(1, 0, 1, r.worker(t)))
	var b bytes.Buffer
	if err := errors.Join(r.machine.Snapshot().Persist(&b), r.machine.Restore(&b)); err != nil {
		t.Fatal(err)
	}
	stream, err := r.jobs.WatchJob(t.Context(), &dtaskv1.WatchJobRequest{Id: "1", FromIndex: known, WithTasks: true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	wantError(t, err, codes.OutOfRange, dtaskv1.ErrorReason_ERROR_REASON_COMPACTED)
	if _, err := r.watch(t.Context(), t, "1").stream.Recv(); err != nil {
		t.Errorf("from the start: got %v", err)
	}
}

func TestAWatchWaitsForTheIndexThatItStartsAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		r.submit(t, "x", task("a"))
		from := r.machine.Index() + 1
		began := time.Now()
		stream, err := r.jobs.WatchJob(t.Context(), &dtaskv1.WatchJobRequest{Id: "1", FromIndex: from})
		if err != nil {
			t.Fatal(err)
		}
		r.leader.op(t, &fsm.CancelJob{Job: 1, Reason: "r"})
		got, err := stream.Recv()
		if err != nil || got.GetIndex() != 0 || got.GetJob().GetState() != dtaskv1.JobState_JOB_STATE_CANCELLED {
			t.Errorf("got %v, %v; want a repeat, since the change was known", got, err)
		}
		if d := time.Since(began); d > applyTimeout {
			t.Errorf("got it after %s", d)
		}
		for consistency, want := range map[dtaskv1.Consistency]codes.Code{
			dtaskv1.Consistency_CONSISTENCY_LINEARIZABLE: codes.InvalidArgument,
			dtaskv1.Consistency_CONSISTENCY_STALE:        codes.Unavailable,
		} {
			stream, err := r.jobs.WatchJob(t.Context(), &dtaskv1.WatchJobRequest{Id: "1", FromIndex: from + 100, Consistency: consistency})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); status.Code(err) != want {
				t.Errorf("%v: got %v, want %v", consistency, err, want)
			}
		}
	})
}
