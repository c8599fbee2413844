package program

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// Work leaves garbage and free memory behind: up to the size of the live heap and what
// DeferCollection adds. Go returns it over minutes, or not at all if the process
// allocates nothing more. An idle process returns it immediately.
const (
	idleInterval  = time.Second
	idleChecks    = 5        // consecutive checks with hardly any allocation that make a process idle
	idleAllocated = 4 << 20  // bytes per interval that count as hardly any
	minReturned   = 32 << 20 // bytes worth returning
)

// ReturnMemory returns memory to the system whenever this process becomes idle. It
// returns immediately; stop ends it and waits. It is for main.
func ReturnMemory() (stop func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(idleInterval)
		defer ticker.Stop()
		var d idleDetector
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				if d.check(readMemory()) {
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

// memory is the state of the heap.
type memory struct {
	allocated uint64 // bytes, since the start
	unused    uint64 // bytes neither live nor returned
}

// readMemory reads the state of the heap without stopping the process.
func readMemory() memory {
	const allocs, objects, live, free, unused = 0, 1, 2, 3, 4
	samples := []metrics.Sample{
		allocs:  {Name: "/gc/heap/allocs:bytes"},
		objects: {Name: "/memory/classes/heap/objects:bytes"}, // includes garbage
		live:    {Name: "/gc/heap/live:bytes"},                // at the last collection
		free:    {Name: "/memory/classes/heap/free:bytes"},
		unused:  {Name: "/memory/classes/heap/unused:bytes"},
	}
	metrics.Read(samples)
	value := func(i int) uint64 { return samples[i].Value.Uint64() }
	m := memory{allocated: value(allocs), unused: value(free) + value(unused)}
	if value(objects) > value(live) {
		m.unused += value(objects) - value(live)
	}
	return m
}

// idleDetector detects when a process becomes idle.
type idleDetector struct {
	allocated uint64 // at the last check
	quiet     int    // consecutive checks
}

// check reports whether unused memory should be returned now.
func (d *idleDetector) check(m memory) bool {
	if m.allocated-d.allocated > idleAllocated {
		d.quiet = 0
	} else {
		d.quiet++
	}
	d.allocated = m.allocated
	if d.quiet < idleChecks || m.unused < minReturned {
		return false
	}
	d.quiet = 0
	return true
}
