package program

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

func TestMemoryIsGivenBackOnceAtRest(t *testing.T) {
	t.Parallel()
	var r rest
	m := memory{allocated: 1 << 30, idle: 2 * restWorth}
	look := func(allocated, idle uint64) bool {
		m.allocated += allocated
		m.idle = idle
		return r.look(m)
	}
	for range 20 {
		if look(restRate+1, 2*restWorth) {
			t.Fatal("given back while it works")
		}
	}
	for i := range restLooks {
		if got, want := look(restRate, 2*restWorth), i == restLooks-1; got != want {
			t.Errorf("look %d at rest gives back: %v", i+1, got)
		}
	}
	for range 20 {
		if look(0, restWorth-1) {
			t.Error("given back what is not worth it")
		}
	}
	if !look(0, restWorth) {
		t.Error("not given back, though at rest for long, what has become idle")
	}
}

func TestAWorkingProcessIsNotTakenForOneAtRestAfterAPause(t *testing.T) {
	t.Parallel()
	var r rest
	m := memory{idle: 2 * restWorth}
	for i := range 50 {
		if i%restLooks == restLooks-1 {
			m.allocated += restRate + 1
		}
		if r.look(m) {
			t.Fatal("given back in a pause")
		}
	}
}

func TestWhatIsIdleIsGivenBack(t *testing.T) { //nolint:paralleltest // it is the whole process's memory
	for range 64 {
		garbage := make([]byte, 1<<20)
		for i := 0; i < len(garbage); i += 4096 {
			garbage[i] = 1
		}
		runtime.KeepAlive(garbage)
	}
	before := held()
	debug.FreeOSMemory()
	after := held()
	if after.idle >= restWorth || after.allocated < before.allocated {
		t.Errorf("idle %d of %d bytes before, %d after", before.idle, before.allocated, after.idle)
	}
	released := []metrics.Sample{{Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(released)
	if released[0].Value.Uint64() == 0 {
		t.Error("the system has got nothing")
	}
}
