package program

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// Work leaves garbage and free memory behind, up to as much again as was live and what
// DeferCollection adds. Go returns it over minutes, or, where nothing is allocated any
// more and nothing is collected, not at all. A process at rest gives it back at once.
const (
	restLook  = time.Second
	restLooks = 5        // in a row in which next to nothing is allocated
	restRate  = 4 << 20  // bytes between two looks that are next to nothing
	restWorth = 32 << 20 // bytes that must be there to be given back
)

// ReturnMemory gives memory back to the system whenever this process comes to rest. It
// returns at once; stop ends it, and waits for that. It belongs into main.
func ReturnMemory() (stop func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(restLook)
		defer ticker.Stop()
		var r rest
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				if r.look(held()) {
					debug.FreeOSMemory()
				}
			}
		}
	})
	return func() {
		close(done)
		running.Wait()
	}
}

// memory is what a process has of its heap.
type memory struct {
	allocated uint64 // bytes, ever
	idle      uint64 // bytes that are neither live nor given back
}

// held reads what this process has. It does not stop it.
func held() memory {
	const allocs, objects, live, free, unused = 0, 1, 2, 3, 4
	samples := []metrics.Sample{
		allocs:  {Name: "/gc/heap/allocs:bytes"},
		objects: {Name: "/memory/classes/heap/objects:bytes"}, // garbage among them
		live:    {Name: "/gc/heap/live:bytes"},                // when it was last collected
		free:    {Name: "/memory/classes/heap/free:bytes"},
		unused:  {Name: "/memory/classes/heap/unused:bytes"},
	}
	metrics.Read(samples)
	value := func(i int) uint64 { return samples[i].Value.Uint64() }
	idle := value(free) + value(unused)
	if value(objects) > value(live) {
		idle += value(objects) - value(live)
	}
	return memory{allocated: value(allocs), idle: idle}
}

// rest finds out whether a process is at rest.
type rest struct {
	allocated uint64 // at the last look
	quiet     int    // looks in a row
}

// look takes what a process has, and says whether to give back what is idle of it.
func (r *rest) look(m memory) bool {
	if m.allocated-r.allocated > restRate {
		r.quiet = 0
	} else {
		r.quiet++
	}
	r.allocated = m.allocated
	if r.quiet < restLooks || m.idle < restWorth {
		return false
	}
	r.quiet = 0
	return true
}
