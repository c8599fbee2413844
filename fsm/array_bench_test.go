package fsm

import (
	"bytes"
	"strconv"
	"testing"
)

const millionTasks = 1_000_000

// millionArray returns the operations that create an array of a million tasks, and
// a task that depends on all of them.
func millionArray() []Op {
	c := NewArrayChunk(0, Array{Name: "map", Body: make([]byte, 32), Ranges: []IndexRange{{0, 1, millionTasks}}, Items: millionTasks, Chunk: 1}, nil)
	b := NewChunkBuilder(millionTasks)
	b.Add("reduce", 0, []uint32{0}, nil)
	after := b.Chunk()
	return []Op{
		&BeginUpload{ID: 1, Key: "k", Header: diamond().header(), Total: millionTasks + 1}, &AddChunk{Job: 1, Chunk: c}, &AddChunk{Job: 1, Chunk: after},
		&SealUpload{Job: 1, Sum: after.Sum(c.Sum(0))},
	}
}

// Not parallel: it measures the heap of the whole process.
func TestAMillionPendingTasksOfAnArrayUseLittleMemory(t *testing.T) { //nolint:paralleltest // see above
	before := heapInUse()
	s, fx := New(), new(Effects)
	if r := s.Apply(mustDecode(t, Encode(nil, Entry{Ops: millionArray()})), fx); r != Accepted {
		t.Fatal(r)
	}
	took := heapInUse() - before
	if j, _ := s.Job(1); j.Counts[Pending] != millionTasks || len(fx.Ready) != 1 || fx.Ready[0].N != millionTasks {
		t.Fatalf("got %d pending tasks and ready %v", j.Counts[Pending], fx.Ready)
	}
	t.Logf("heap bytes per pending task of an array of a million: %.2f", float64(took)/millionTasks)
	if took > 1<<20 {
		t.Errorf("a pending array uses %d bytes, want at most 1 MiB", took)
	}
	again := restored(t, snapshotOf(t, s))
	sameState(t, "restored", again, s)
	if again.jobs.get(1).records.pages[1] != again.jobs.get(1).records.pages[2] {
		t.Error("a restored array does not share its pages")
	}
	name := s.Name(ref(1, 999_999))
	if at, ok := s.FindTask(1, name); name != "map[999999]" || !ok || at.Index != 999_999 {
		t.Errorf("last task: got name %q, found at %v", name, at)
	}
	// A write touches only one page, and shared pages keep their contents.
	fork := s.Fork()
	fork.Apply(Entry{Ops: []Op{worker(1), &Assign{Items: []AssignItem{AssignItem(hold(1, 300, 1, 1))}}}}, nil)
	if state := s.AttemptState(ref(1, 300)).State; state != Pending {
		t.Errorf("the origin of the fork changed: got %v", state)
	}
	if state := fork.AttemptState(ref(1, 300+pageSize)).State; state != Pending {
		t.Errorf("another page changed: got %v", state)
	}
	if !bytes.Equal(s.Body(ref(1, 0)), s.Body(ref(1, 5))) || s.Dependents(ref(1, 7)) != 1 {
		t.Error("got different tasks of an array")
	}
}

// BenchmarkSealMillionArray measures what a replica does for a job with an array
// of a million tasks, from its entry until all of them are ready.
func BenchmarkSealMillionArray(b *testing.B) {
	data := Encode(nil, Entry{Ops: millionArray()})
	b.ReportAllocs()
	for b.Loop() {
		e, err := Decode(data)
		if err != nil || New().Apply(e, new(Effects)) != Accepted {
			b.Fatal("refused", err)
		}
	}
	b.ReportMetric(float64(len(data)), "B/entry")
}

// BenchmarkCompleteArrayWithDependents measures a completion in an array on which as
// many tasks depend as it has: all but the last one must not visit them.
func BenchmarkCompleteArrayWithDependents(b *testing.B) {
	const n = 100_000
	c := NewArrayChunk(0, Array{Name: "map", Ranges: []IndexRange{{0, 1, n}}, Items: n, Chunk: 1}, nil)
	listed := NewChunkBuilder(n)
	for i := range n {
		listed.Add("t"+strconv.Itoa(i), 0, []uint32{0}, nil)
	}
	after := listed.Chunk()
	submitted := func() *State {
		s := New()
		if r := s.Apply(Entry{Ops: []Op{
			&BeginUpload{ID: 1, Key: "k", Header: diamond().header(), Total: 2 * n}, &AddChunk{Job: 1, Chunk: c}, &AddChunk{Job: 1, Chunk: after},
			&SealUpload{Job: 1, Sum: after.Sum(c.Sum(0))}, worker(1),
		}}, nil); r != Accepted {
			b.Fatal(r)
		}
		return s
	}
	s, i := submitted(), uint32(0)
	for b.Loop() {
		if i++; i == n { // only the last one is left
			b.StopTimer()
			s, i = submitted(), 1
			b.StartTimer()
		}
		s.Apply(Entry{Ops: []Op{&Assign{Items: []AssignItem{AssignItem(hold(1, i, 1, 1))}}, complete(hold(1, i, 1, 1))}}, nil)
	}
}

// BenchmarkReviveArrayBehindManyTasks measures a retry of an array that was cancelled and
// depends on many tasks: their states must be read once for the array, not for each of
// its tasks.
func BenchmarkReviveArrayBehindManyTasks(b *testing.B) {
	const tasks, dependencies = 20_000, 2_000
	listed, on := NewChunkBuilder(0), make([]uint32, dependencies)
	for i := range on {
		on[i] = uint32(i) //nolint:gosec // ≤ dependencies
		listed.Add("t"+strconv.Itoa(i), 0, nil, nil)
	}
	before := listed.Chunk()
	c := NewArrayChunk(dependencies, Array{Name: "map", Deps: on, Ranges: []IndexRange{{0, 1, tasks}}, Items: tasks, Chunk: 1}, nil)
	origin := New()
	if r := origin.Apply(Entry{Ops: []Op{
		&BeginUpload{ID: 1, Key: "k", Header: diamond().header(), Total: dependencies + tasks}, &AddChunk{Job: 1, Chunk: before}, &AddChunk{Job: 1, Chunk: c},
		&SealUpload{Job: 1, Sum: c.Sum(before.Sum(0))}, &FailTask{Task: ref(1, 0), Error: "x"},
	}}, nil); r != Accepted {
		b.Fatal(r)
	}
	for b.Loop() {
		if r := origin.Fork().Apply(Entry{Ops: []Op{&Revive{Job: 1}}}, new(Effects)); r != Accepted {
			b.Fatal(r)
		}
	}
}
