package program

import (
	"runtime"

	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"
)

// TuneBuffers gives gRPC buffers of more sizes. Its own largest ones have 32 KiB and
// 1 MiB, and a buffer is cleared as a whole before it is reused: a megabyte for a
// message of 40 KiB. Call it first in main, before anything is served or dialed.
func TuneBuffers() {
	pool, err := mem.NewBinaryTieredBufferPool(8, 12, 14, 15, 16, 17, 18, 19, 20)
	if err != nil {
		panic(err) // not with the numbers above
	}
	experimental.SetDefaultBufferPool(pool)
}

// SampleHeap makes the heap profile sample every 4 MiB of allocations, instead of every 512 KiB.
// Recording the stacks of the samples took 1.3 % of the CPU time of a busy leader, whose heap has 100
// MB and more. Call it first in main.
func SampleHeap() { runtime.MemProfileRate = 4 << 20 }

// ballast is memory that is never touched, so that the system never provides it.
var ballast []byte //nolint:unused // it only has to stay allocated

// DeferCollection makes garbage collections rarer in a process with a small heap, as
// if the heap had n more bytes. Go collects after allocating as much as is live, or 4
// MiB. A process with a thousand goroutines and a small heap would scan all their
// stacks many times per second. The process has at most n more bytes of garbage than
// otherwise; GOGC applies as usual.
func DeferCollection(n int) { ballast = make([]byte, n) }
