package fsm

import (
	"fmt"
	"runtime"
	"testing"
	"unsafe"
)

const (
	memoryTasks = 100_000
	perChunk    = 1000
)

// chunkOf is a chunk of a job of memoryTasks with payloads of 32 bytes.
func chunkOf(first int) *Chunk {
	b := NewChunkBuilder(uint32(first))
	body := make([]byte, 32)
	for i := range perChunk {
		b.Add(fmt.Sprintf("t%06d", first+i), 0, nil, body)
	}
	return b.Chunk()
}

// largeLog is the log of the job, each entry made when it is asked for.
func largeLog(yield func(Entry) bool) {
	sum := uint32(0)
	begin := Entry{Ops: []Op{worker(1), &BeginUpload{ID: 1, Key: "k", Header: diamond().header(), Total: memoryTasks}}}
	if !yield(begin) {
		return
	}
	for first := 0; first < memoryTasks; first += perChunk {
		c := chunkOf(first)
		sum = c.Sum(sum)
		if !yield(Entry{Ops: []Op{&AddChunk{Job: 1, Chunk: c}}}) {
			return
		}
	}
	yield(Entry{Ops: []Op{&SealUpload{Job: 1, Sum: sum}}})
}

func assignAll(attempt uint32) Entry {
	o := new(Assign)
	for i := range uint32(memoryTasks) {
		o.Items = append(o.Items, AssignItem(hold(1, i, attempt, 1)))
	}
	return Entry{Ops: []Op{o}}
}

func completeAll(attempt uint32) Entry {
	o := new(Complete)
	for i := range uint32(memoryTasks) {
		o.Items = append(o.Items, CompleteItem{HeldAttempt: hold(1, i, attempt, 1), DurationMS: 7})
	}
	return Entry{Ops: []Op{o}}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Not parallel: it measures the heap of the whole process.
func TestAPendingTaskCostsLittleMemory(t *testing.T) { //nolint:paralleltest // see above
	if size := unsafe.Sizeof(record{}); size != 48 {
		t.Errorf("a record takes %d bytes, want 48", size)
	}
	before := heapInUse()
	follower, last := New(), Reason(0)
	for e := range largeLog {
		last = follower.Apply(mustDecode(t, Encode(nil, e)), nil)
	}
	alone := float64(heapInUse()-before) / memoryTasks
	if last != Accepted {
		t.Fatal(last)
	}
	runtime.KeepAlive(follower)

	follower = nil
	before = heapInUse()
	replica := New()
	fork := replica.Fork()
	for e := range largeLog { // as the leader: drafted on its fork, then applied from the same entry
		d := NewEntryBuilder(fork, 0, nil)
		for _, op := range e.Ops {
			last = max(last, d.Do(op))
		}
		drafted, digest, _ := d.Finish()
		replica.Apply(drafted, nil)
		if replica.Digest() != digest {
			t.Fatal("digests differ")
		}
	}
	both := float64(heapInUse()-before) / memoryTasks
	runtime.KeepAlive(replica)
	runtime.KeepAlive(fork)
	t.Logf("heap bytes per pending task of 32 B payload: %.1f on a follower, %.1f on the leader with its fork", alone, both)
	if last != Accepted || alone > 200 || both > 300 {
		t.Errorf("%v; want at most 200 and 300", last)
	}
}
