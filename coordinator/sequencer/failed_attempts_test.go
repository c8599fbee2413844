package sequencer

import (
	"fmt"
	"testing"

	"github.com/dtask/dtask/scheduler/backoff"
)

func TestTheTypesOfFailedAttemptsAreBounded(t *testing.T) {
	t.Parallel()
	var f FailedAttempts
	if got := f.Counts(); len(got) != 1 || got[FailedKind{OtherTypes, "error"}] != 0 {
		t.Errorf("at first: %v", got)
	}
	for i := range 60 {
		f.add(fmt.Sprint("t", i), backoff.Timeout)
		f.add("t0", backoff.Exit)
	}
	got := f.Counts()
	for kind, want := range map[FailedKind]uint64{{"t0", "timeout"}: 1, {"t0", "exit"}: 60, {"t49", "timeout"}: 1, {OtherTypes, "timeout"}: 10, {OtherTypes, "error"}: 0} {
		if got[kind] != want {
			t.Errorf("%v: got %d, want %d", kind, got[kind], want)
		}
	}
	if len(got) != 53 {
		t.Errorf("got %d series", len(got))
	}
}
