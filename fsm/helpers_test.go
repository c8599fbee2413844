package fsm

import (
	"bytes"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// taskPlan is a task to submit.
type taskPlan struct {
	name   string
	policy uint32
	deps   []uint32
	body   []byte
}

// jobPlan is a job to submit. Policy 0 may be repeated, policy 1 is at most once.
type jobPlan struct {
	onFailure dtaskv1.OnFailure
	tasks     []taskPlan
}

const (
	stopOnFailure     = dtaskv1.OnFailure_ON_FAILURE_STOP
	continueOnFailure = dtaskv1.OnFailure_ON_FAILURE_CONTINUE
)

func (p *jobPlan) header() []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(&dtaskv1.JobHeader{
		Name: "plan", OnFailure: p.onFailure,
		Policies: []*dtaskv1.TaskPolicy{
			{TimeoutMs: 1000, Execution: dtaskv1.Execution_EXECUTION_AT_LEAST_ONCE},
			{TimeoutMs: 1000, Execution: dtaskv1.Execution_EXECUTION_AT_MOST_ONCE},
		},
	})
	if err != nil {
		panic(err)
	}
	return b
}

// chunk builds the tasks [from, to).
func (p *jobPlan) chunk(from, to int) *Chunk {
	b := NewChunkBuilder(uint32(from))
	for _, t := range p.tasks[from:to] {
		b.Add(t.name, t.policy, t.deps, t.body)
	}
	return b.Chunk()
}

func (p *jobPlan) sum() uint32 { return p.chunk(0, len(p.tasks)).Sum(0) }

// submit gives the operations that make the job exist, in chunks of a size.
func (p *jobPlan) submit(id JobID, key string, chunkSize int) []Op {
	ops := []Op{&JobBegin{ID: id, Key: key, KeyExpires: 1000, Header: p.header(), Total: uint32(len(p.tasks))}}
	for i := 0; i < len(p.tasks); i += chunkSize {
		ops = append(ops, &JobChunk{Job: id, Chunk: p.chunk(i, min(i+chunkSize, len(p.tasks)))})
	}
	return append(ops, &JobSeal{Job: id, Sum: p.sum(), Digest: [16]byte{byte(id)}})
}

// plan makes a job whose task i depends on deps[i].
func plan(deps ...[]uint32) *jobPlan {
	p := &jobPlan{onFailure: stopOnFailure}
	for i, d := range deps {
		p.tasks = append(p.tasks, taskPlan{name: fmt.Sprintf("t%d", i), deps: d, body: []byte{byte(i)}})
	}
	return p
}

// diamond is 0 ← 1, 2 ← 3.
func diamond() *jobPlan { return plan(nil, []uint32{0}, []uint32{0}, []uint32{1, 2}) }

// chain is n tasks, each after the one before.
func chain(n int) *jobPlan {
	deps := make([][]uint32, n)
	for i := 1; i < n; i++ {
		deps[i] = []uint32{uint32(i - 1)}
	}
	return plan(deps...)
}

// fan is one task, n after it, and one after all of these.
func fan(n int) *jobPlan {
	deps := make([][]uint32, n+2)
	for i := 1; i <= n; i++ {
		deps[i] = []uint32{0}
		deps[n+1] = append(deps[n+1], uint32(i))
	}
	return plan(deps...)
}

// chooser gives a number below n. Both rapid and a seeded generator can be one.
type chooser func(n int) int

func (c chooser) one(in int) bool { return c(in) == 0 }

// randomPlan is a random DAG of up to most tasks.
func randomPlan(c chooser, most int) *jobPlan {
	p := &jobPlan{onFailure: stopOnFailure}
	if c.one(2) {
		p.onFailure = continueOnFailure
	}
	n := 1 + c(most)
	for i := range n {
		t := taskPlan{name: fmt.Sprintf("t%d", i), policy: uint32(c(2)), body: make([]byte, c(4))}
		for d := max(0, i-4); d < i; d++ {
			if c.one(3) {
				t.deps = append(t.deps, uint32(d))
			}
		}
		p.tasks = append(p.tasks, t)
	}
	return p
}

func worker(id WorkerID) *WorkerJoin {
	return &WorkerJoin{
		ID: id, Name: fmt.Sprintf("w%d", id), Incarnation: "i1", Slots: 4,
		Labels: []Label{{"zone", "a"}, {"arch", "x"}}, Resources: []Resource{{"cpu", 4000}}, Version: "v1", Address: "127.0.0.1:1",
	}
}

func ref(job JobID, index uint32) TaskRef { return TaskRef{Job: job, Index: index} }

func att(job JobID, index, attempt uint32) AttemptRef {
	return AttemptRef{TaskRef: ref(job, index), Attempt: attempt}
}

func hold(job JobID, index, attempt uint32, w WorkerID) HeldItem {
	return HeldItem{AttemptRef: att(job, index, attempt), Worker: w}
}

// world is a state under test, with the log that made it.
type world struct {
	t     testing.TB
	s     *State
	now   int64
	log   [][]byte
	marks []uint64 // digests after each entry
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	return &world{t: tb, s: New()}
}

// try applies operations as one entry that went through the log.
func (w *world) try(ops ...Op) Reason {
	w.t.Helper()
	w.now += 10
	data := Compact{}.Encode(nil, Entry{NowMS: w.now, Ops: ops})
	e, err := Compact{}.Decode(data)
	if err != nil {
		w.t.Fatalf("decoding own entry: %v", err)
	}
	r := w.s.Apply(e, nil)
	if err := w.s.Check(); err != nil {
		w.t.Fatalf("after entry %d: %v", w.s.Entries(), err)
	}
	w.log, w.marks = append(w.log, data), append(w.marks, w.s.Digest())
	return r
}

// do is try for what must be accepted.
func (w *world) do(ops ...Op) *world {
	w.t.Helper()
	if r := w.try(ops...); r != Accepted {
		w.t.Fatalf("entry %d refused: %v", w.s.Entries(), r)
	}
	return w
}

// submit makes a job exist.
func (w *world) submit(p *jobPlan) JobID {
	w.t.Helper()
	id := w.s.NextJob()
	w.do(p.submit(id, fmt.Sprintf("key-%d", id), 3)...)
	return id
}

// assign gives a task of job 1 to a worker.
func (w *world) assign(index uint32, to WorkerID) HeldItem {
	w.t.Helper()
	last, _ := w.s.Ready(ref(1, index))
	h := hold(1, index, last+1, to)
	w.do(&Assign{Items: []AssignItem{AssignItem(h)}})
	return h
}

func (w *world) state(job JobID, index uint32) TaskState {
	w.t.Helper()
	v, ok := w.s.Task(ref(job, index))
	if !ok {
		w.t.Fatalf("no task %d/%d", job, index)
	}
	return v.State
}

func complete(h HeldItem) *Complete {
	return &Complete{Items: []CompleteItem{{HeldItem: h, DurationMS: 5}}}
}

func failed(h HeldItem, next Next) *Fail {
	return &Fail{Items: []FailItem{{HeldItem: h, Next: next, Due: 500, Burns: true, Error: "exit 1"}}}
}

func snapshotOf(tb testing.TB, s *State) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := s.WriteSnapshot(&b); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func restored(tb testing.TB, snapshot []byte) *State {
	tb.Helper()
	s, err := ReadSnapshot(bytes.NewReader(snapshot))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// sameState fails the test unless two states have equal digests and snapshots.
func sameState(tb testing.TB, what string, got, want *State) {
	tb.Helper()
	if got.Digest() != want.Digest() {
		tb.Fatalf("%s: digest %#x, want %#x", what, got.Digest(), want.Digest())
	}
	if !bytes.Equal(snapshotOf(tb, got), snapshotOf(tb, want)) {
		tb.Fatalf("%s: snapshots differ", what)
	}
}
