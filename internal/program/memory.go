package program

import (
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"
)

// TuneBuffers gives gRPC buffers of more sizes. Of its own the largest have 32 KiB and 1 MiB, and
// a buffer is cleared as a whole before it is used again: a megabyte for a message of 40 KiB.
// It belongs at the begin of main, before anything is served or dialled.
func TuneBuffers() {
	pool, err := mem.NewBinaryTieredBufferPool(8, 12, 14, 15, 16, 17, 18, 19, 20)
	if err != nil {
		panic(err) // the numbers above are none
	}
	experimental.SetDefaultBufferPool(pool)
}

// ballast is memory that nobody touches, so that the system never has to provide it.
var ballast []byte //nolint:unused // that it is held is all that it is for

// DeferCollection lets a process with little in memory collect its garbage more rarely: as
// if it held n bytes more. Go collects when as much has been allocated as is live, or 4 MiB.
// What runs a thousand goroutines and holds next to nothing would walk all their stacks many
// times a second. At most n bytes more of garbage are there than otherwise, however much
// is live; GOGC counts as ever.
func DeferCollection(n int) { ballast = make([]byte, n) }
