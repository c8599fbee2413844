package program

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

func TestAnIdleProcessReturnsMemory(t *testing.T) {
	t.Parallel()
	var d idleDetector
	m := memory{allocated: 1 << 30, unused: 2 * minReturned}
	check := func(allocated, unused uint64) bool {
		m.allocated += allocated
		m.unused = unused
		return d.check(m)
	}
	for range 20 {
		if check(idleAllocated+1, 2*minReturned) {
			t.Fatal("returned memory of a busy process")
		}
	}
	for i := range idleChecks {
		if got, want := check(idleAllocated, 2*minReturned), i == idleChecks-1; got != want {
			t.Errorf("idle check %d returns memory: %v", i+1, got)
		}
	}
	for range 20 {
		if check(0, minReturned-1) {
			t.Error("returned too little memory to be worth it")
		}
	}
	if !check(0, minReturned) {
		t.Error("memory that became unused in an idle process was not returned")
	}
}

func TestAPauseOfABusyProcessIsNotIdleness(t *testing.T) {
	t.Parallel()
	var d idleDetector
	m := memory{unused: 2 * minReturned}
	for i := range 50 {
		if i%idleChecks == idleChecks-1 {
			m.allocated += idleAllocated + 1
		}
		if d.check(m) {
			t.Fatal("returned memory during a pause")
		}
	}
}

func TestUnusedMemoryIsReturned(t *testing.T) { //nolint:paralleltest // it measures the memory of the whole process
	for range 64 {
		garbage := make([]byte, 1<<20)
		for i := 0; i < len(garbage); i += 4096 {
			garbage[i] = 1
		}
		runtime.KeepAlive(garbage)
	}
	before := readMemory()
	debug.FreeOSMemory()
	after := readMemory()
	if after.unused >= minReturned || after.allocated < before.allocated {
		t.Errorf("unused %d of %d bytes before, %d after", before.unused, before.allocated, after.unused)
	}
	released := []metrics.Sample{{Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(released)
	if released[0].Value.Uint64() == 0 {
		t.Error("nothing was returned to the system")
	}
}
