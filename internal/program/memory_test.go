package program_test

import (
	"runtime"
	"testing"

	"google.golang.org/grpc/mem"

	"github.com/dtask/dtask/internal/program"
)

func TestABufferIsNotMuchLargerThanItsMessage(t *testing.T) { //nolint:paralleltest // it is the whole process's pool
	program.TuneBuffers()
	pool := mem.DefaultBufferPool()
	for _, n := range []int{40 << 10, 100 << 10, 500 << 10, 1 << 20} {
		b := pool.Get(n)
		if len(*b) != n || cap(*b) > 2*n {
			t.Errorf("a buffer for %d bytes has %d of %d", n, len(*b), cap(*b))
		}
		pool.Put(b)
	}
}

func TestCollectionIsDeferred(t *testing.T) { //nolint:paralleltest // it is the whole process's memory
	const more = 64 << 20
	program.DeferCollection(more)
	defer program.DeferCollection(0)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.NextGC < more {
		t.Errorf("garbage is collected at %d bytes", m.NextGC)
	}
}
