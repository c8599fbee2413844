package sequencer

import (
	"testing"
	"time"

	"github.com/dtask/dtask/fsm"
)

func TestTheWaitSamplerMeasuresAllTasksWhileFewAreReady(t *testing.T) {
	t.Parallel()
	x := waitSampler{since: make(map[fsm.TaskRef]time.Time)}
	now := time.Now()
	x.start(fsm.TaskRun{TaskRef: fsm.TaskRef{Job: 1, Index: 5}, N: 10}, now)
	for i := range uint32(10) {
		if since, ok := x.end(fsm.TaskRef{Job: 1, Index: 5 + i}, 10); !ok || !since.Equal(now) {
			t.Errorf("task %d: got %v, %v; want %v", 5+i, since, ok, now)
		}
	}
	if len(x.since) != 0 {
		t.Errorf("%d samples are left", len(x.since))
	}
}

func TestTheWaitSamplerMeasuresOneTaskInManyUnderLoad(t *testing.T) {
	t.Parallel()
	x := waitSampler{since: make(map[fsm.TaskRef]time.Time)}
	x.start(fsm.TaskRun{TaskRef: fsm.TaskRef{Job: 1, Index: 5}, N: 10 * sampleInterval}, time.Now())
	if len(x.since) != 10 {
		t.Errorf("%d samples, want 10", len(x.since))
	}
	for ref := range x.since {
		if ref.Index%sampleInterval != 0 {
			t.Errorf("task %d is sampled", ref.Index)
		}
	}
	for job := fsm.JobID(2); job < 5; job++ {
		x.start(fsm.TaskRun{TaskRef: fsm.TaskRef{Job: job}, N: sampleInterval * maxSamples}, time.Now())
	}
	if len(x.since) != maxSamples {
		t.Errorf("%d samples, want at most %d", len(x.since), maxSamples)
	}
}
