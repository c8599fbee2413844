package fsm

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"testing"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// taskPlan is a task to submit.
type taskPlan struct {
	name   string
	policy uint32
	deps   []uint32
	when   []Condition // of deps; empty: all completed
	body   []byte
	of     *arrayPlan // its array, in which it is at place
	place  int
}

// arrayPlan is an array to submit, of items or of ranges. Its tasks are adjacent
// in the plan.
type arrayPlan struct {
	Array
	items [][]byte
}

// jobPlan is a job to submit. Policy 0 may be repeated, policy 1 is at most once;
// 2 and 3 are the same for cleanup tasks; 4 is pure.
type jobPlan struct {
	onFailure   dtaskv1.OnFailure
	webhook     string
	namespace   string
	maxFailures uint32
	needs       []*dtaskv1.JobNeed
	name        string // empty = plan
	times       jobTimes
	queue       string
	uses        []string                // of policy 0
	either      []*dtaskv1.ResourceList // alternatives of policies 0 and 1
	tasks       []taskPlan
}

const (
	stopOnFailure     = dtaskv1.OnFailure_ON_FAILURE_STOP
	continueOnFailure = dtaskv1.OnFailure_ON_FAILURE_CONTINUE
)

// someAlternatives are two alternatives to no resources.
var someAlternatives = []*dtaskv1.ResourceList{{Resources: map[string]int64{"cpu": 2000}}, {Resources: map[string]int64{"gpu": 500}}}

func (p *jobPlan) header() []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(&dtaskv1.JobHeader{
		Name: cmp.Or(p.name, "plan"), OnFailure: p.onFailure, Webhook: p.webhook, Namespace: p.namespace, MaxFailures: p.maxFailures, Needs: p.needs, Queue: p.queue,
		StartAtMs: p.times.startAt, StartAfterMs: p.times.startAfter, ExpiresMs: p.times.expires, Concurrency: p.times.shared,
		Policies: []*dtaskv1.TaskPolicy{
			{TimeoutMs: 1000, Execution: dtaskv1.Execution_EXECUTION_AT_LEAST_ONCE, Uses: p.uses, Alternatives: p.either},
			{Type: "once", TimeoutMs: 1000, Execution: dtaskv1.Execution_EXECUTION_AT_MOST_ONCE, Alternatives: p.either},
			{TimeoutMs: 1000, Execution: dtaskv1.Execution_EXECUTION_AT_LEAST_ONCE, Finally: true},
			{TimeoutMs: 1000, Execution: dtaskv1.Execution_EXECUTION_AT_MOST_ONCE, Finally: true},
			{TimeoutMs: 1000, Execution: dtaskv1.Execution_EXECUTION_AT_LEAST_ONCE, ReuseMs: 1000},
		},
	})
	if err != nil {
		panic(err)
	}
	return b
}

// chunk builds a chunk of tasks of one kind from an index up to another: as many
// as fit.
func (p *jobPlan) chunk(from, to int) *Chunk {
	if p.tasks[from].of != nil {
		return p.arrayChunk(from)
	}
	b := NewChunkBuilder(uint32(from))
	for _, t := range p.tasks[from:to] {
		if t.of != nil {
			break
		}
		b.AddConditional(t.name, t.policy, t.deps, t.when, t.body)
	}
	return b.Chunk()
}

// arrayChunk builds an array, or the part of its items that starts at a task, two
// tasks each.
func (p *jobPlan) arrayChunk(from int) *Chunk {
	a, place := p.tasks[from].of, p.tasks[from].place
	if len(a.Ranges) > 0 {
		return NewArrayChunk(uint32(from), a.Array, nil)
	}
	part := place / 2
	first := part * 2 * int(a.Chunk)
	items := a.items[first:min(first+2*int(a.Chunk), len(a.items))]
	if part == 0 {
		return NewArrayChunk(uint32(from), a.Array, items)
	}
	return NewItemsChunk(uint32(from), uint32(part), a.Chunk, items)
}

// chunks splits the job into chunks of at most a size, with arrays apart.
func (p *jobPlan) chunks(size int) (list []*Chunk) {
	for i := 0; i < len(p.tasks); {
		c := p.chunk(i, min(i+size, len(p.tasks)))
		list = append(list, c)
		i += c.Len()
	}
	return list
}

func (p *jobPlan) sum() uint32 {
	sum := uint32(0)
	for _, c := range p.chunks(len(p.tasks)) {
		sum = c.Sum(sum)
	}
	return sum
}

// addArray adds an array and its tasks.
func (p *jobPlan) addArray(a arrayPlan) {
	a.Body = []byte{0x12, 1, 'a'}
	for k := range a.Tasks() {
		p.tasks = append(p.tasks, taskPlan{name: a.taskName(k), policy: a.Policy, deps: a.Deps, when: a.Conditions, body: a.Body, of: &a, place: int(k)})
	}
}

// head returns the index by which others depend on a task.
func (p *jobPlan) head(i int) uint32 { return uint32(i - p.tasks[i].place) }

// submit returns the operations that create the job, in chunks of a size.
func (p *jobPlan) submit(id JobID, key string, chunkSize int) []Op {
	ops := []Op{&BeginUpload{ID: id, Key: key, KeyExpires: 1000, Header: p.header(), Total: uint32(len(p.tasks))}}
	for _, c := range p.chunks(chunkSize) {
		ops = append(ops, &AddChunk{Job: id, Chunk: c})
	}
	return append(ops, &SealUpload{Job: id, Sum: p.sum(), Digest: [16]byte{byte(id)}})
}

// plan returns a job whose task i depends on deps[i].
func plan(deps ...[]uint32) *jobPlan {
	p := &jobPlan{onFailure: stopOnFailure}
	for i, d := range deps {
		p.tasks = append(p.tasks, taskPlan{name: fmt.Sprintf("t%d", i), deps: d, body: []byte{byte(i)}})
	}
	return p
}

// diamond is 0 ← 1, 2 ← 3.
func diamond() *jobPlan { return plan(nil, []uint32{0}, []uint32{0}, []uint32{1, 2}) }

// chain is a job of n tasks, each after the previous one.
func chain(n int) *jobPlan {
	deps := make([][]uint32, n)
	for i := 1; i < n; i++ {
		deps[i] = []uint32{uint32(i - 1)}
	}
	return plan(deps...)
}

// fan is one task, n tasks after it, and one after all of these.
func fan(n int) *jobPlan {
	deps := make([][]uint32, n+2)
	for i := 1; i <= n; i++ {
		deps[i] = []uint32{0}
		deps[n+1] = append(deps[n+1], uint32(i))
	}
	return plan(deps...)
}

// chooser returns a number below n. Both rapid and a seeded generator provide one.
type chooser func(n int) int

func (c chooser) one(in int) bool { return c(in) == 0 }

// randomPlan is a random DAG of up to most tasks.
func randomPlan(c chooser, most int) *jobPlan {
	p := &jobPlan{onFailure: stopOnFailure}
	if c.one(2) {
		p.onFailure = continueOnFailure
	}
	if c.one(2) {
		p.webhook = "http://127.0.0.1:1/ended"
	}
	bodies := []string{"", "\x0a\x01a", "\x12\x01a", "\x00"} // none, a command, shell text, invalid
	n, conditional := 1+c(most), c.one(2)
	for len(p.tasks) < n {
		i := len(p.tasks)
		if c.one(6) {
			a := randomArray(c, p, i)
			a.Conditions = randomConditions(c, conditional, len(a.Deps))
			p.addArray(a)
			continue
		}
		t := taskPlan{name: fmt.Sprintf("t%d", i), policy: uint32(c(2)), body: []byte(bodies[c(len(bodies))])}
		if c.one(3) {
			t.policy, t.body = 4, pureBody(fmt.Sprintf("k%d", c(2)), []string{"", "o"}[c(2)])
		}
		t.deps = randomDeps(c, p, i)
		t.when = randomConditions(c, conditional, len(t.deps))
		p.tasks = append(p.tasks, t)
	}
	if c.one(3) {
		p.cleanUp(c)
	}
	if c.one(3) {
		p.maxFailures = uint32(1 + c(3))
	}
	return p
}

// randomDeps returns some of the tasks, or of their arrays, before i; once in a
// hundred a task inside an array.
func randomDeps(c chooser, p *jobPlan, i int) (deps []uint32) {
	for d := max(0, i-4); d < i; d++ {
		if !c.one(3) {
			continue
		}
		dep := p.head(d)
		if c.one(100) {
			dep = uint32(d)
		}
		if len(deps) == 0 || deps[len(deps)-1] < dep {
			deps = append(deps, dep)
		}
	}
	return deps
}

// randomConditions returns conditions of n dependencies.
func randomConditions(c chooser, some bool, n int) (list []Condition) {
	for range n {
		if !some {
			return nil
		}
		list = append(list, []Condition{WhenCompleted, WhenEnded, WhenTolerated, WhenFailed}[c(4)])
	}
	return list
}

// randomArray returns an array that starts at task i: mostly small, rarely of more
// than two pages.
func randomArray(c chooser, p *jobPlan, i int) arrayPlan {
	a := arrayPlan{Array: Array{
		Name: fmt.Sprintf("a%d", i), Policy: uint32(c(2)), Deps: randomDeps(c, p, i), Chunk: uint32(1 + c(2)), MaxParallel: uint32(c(3)), JSON: c.one(2),
	}}
	n := 1 + c(5)
	if c.one(25) {
		n = 3*pageSize + c(3)
	}
	if c.one(2) {
		for k := range n {
			a.items = append(a.items, fmt.Appendf(nil, `"i%d"`, k))
		}
		a.Items = uint32(n)
		return a
	}
	a.Ranges = []IndexRange{{First: uint32(c(3)), Step: uint32(1 + c(2)), Count: uint32(n)}}
	if c.one(3) {
		a.Ranges = append(a.Ranges, IndexRange{First: uint32(a.Ranges[0].last()) + 1 + uint32(c(3)), Step: 1, Count: 2})
	}
	for _, r := range a.Ranges {
		a.Items += r.Count
	}
	return a
}

// pureBody is the body of a pure task.
func pureBody(key, output string) []byte {
	b, err := proto.Marshal(&dtaskv1.TaskBody{ReuseKey: key, Output: output})
	if err != nil {
		panic(err)
	}
	return b
}

// cleanUp adds one to three cleanup tasks. Once in twenty it makes an invalid job:
// a cleanup task depends on an ordinary task or precedes one.
func (p *jobPlan) cleanUp(c chooser) {
	n := len(p.tasks)
	for i := range 1 + c(3) {
		t := taskPlan{name: fmt.Sprintf("f%d", i), policy: uint32(2 + c(2))}
		if i > 0 && c.one(2) {
			t.deps = []uint32{uint32(n + c(i))}
			t.when = randomConditions(c, c.one(2), 1)
		}
		if c.one(40) {
			t.deps, t.when = []uint32{uint32(c(n))}, nil
		}
		p.tasks = append(p.tasks, t)
	}
	if c.one(20) {
		p.tasks[len(p.tasks)-1].policy = 0
	}
	if c.one(5) {
		a := arrayPlan{Array: Array{Name: "fa", Policy: uint32(2 + c(2)), Ranges: []IndexRange{{0, 1, 3}}, Items: 3, Chunk: 1}}
		if c.one(2) {
			a.Deps = []uint32{uint32(n)}
			a.Conditions = randomConditions(c, c.one(2), 1)
		}
		p.addArray(a)
	}
}

func worker(id WorkerID) *RegisterWorker {
	return &RegisterWorker{
		ID: id, Name: fmt.Sprintf("w%d", id), Incarnation: "i1", Slots: 4,
		Labels: []Label{{"zone", "a"}, {"arch", "x"}}, Resources: []Resource{{"cpu", 4000}}, Version: "v1", Address: "127.0.0.1:1",
	}
}

func ref(job JobID, index uint32) TaskRef { return TaskRef{Job: job, Index: index} }

func att(job JobID, index, attempt uint32) AttemptRef {
	return AttemptRef{TaskRef: ref(job, index), Attempt: attempt}
}

func hold(job JobID, index, attempt uint32, w WorkerID) HeldAttempt {
	return HeldAttempt{AttemptRef: att(job, index, attempt), Worker: w}
}

// world is a state under test, with its log.
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
	data := Encode(nil, Entry{NowMS: w.now, Ops: ops})
	e, err := Decode(data)
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

// do is try for operations that must be accepted.
func (w *world) do(ops ...Op) *world {
	w.t.Helper()
	if r := w.try(ops...); r != Accepted {
		w.t.Fatalf("entry %d refused: %v", w.s.Entries(), r)
	}
	return w
}

// submit creates a job.
func (w *world) submit(p *jobPlan) JobID {
	w.t.Helper()
	id := w.s.NextJob()
	w.do(p.submit(id, fmt.Sprintf("key-%d", id), 3)...)
	return id
}

// assign assigns a task of job 1 to a worker.
func (w *world) assign(index uint32, to WorkerID) HeldAttempt {
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
		w.t.Fatalf("unknown task %d/%d", job, index)
	}
	return v.State
}

func complete(h HeldAttempt) *Complete {
	return &Complete{Items: []CompleteItem{{HeldAttempt: h, DurationMS: 5}}}
}

func failed(h HeldAttempt, next Next) *Fail {
	return &Fail{Items: []FailItem{{HeldAttempt: h, Next: next, Due: 500, CountsAsRetry: true, Error: "exit 1"}}}
}

func snapshotOf(tb testing.TB, s *State) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := s.WriteSnapshot(&b); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// restored reads a snapshot of a cluster at any level.
func restored(tb testing.TB, snapshot []byte) *State {
	tb.Helper()
	s, err := readSnapshot(bytes.NewReader(snapshot), math.MaxUint32, false)
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
