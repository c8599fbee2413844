package sequencer

import (
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

// shortTask is how long the tasks of a worker may take, on the average of the
// last few, for it to be given some ahead of a free slot. Above, a slot that
// waits for the log between two tasks loses next to nothing, and a task that
// waits behind long ones while another worker is idle loses much.
const shortTask = 100 * time.Millisecond

// pace is how fast a worker has been lately, and what follows from it.
type pace struct {
	prefetch int           // attempts that it takes beyond its slots
	average  time.Duration // of what it completed, the last ones weighing most
}

// newPace is that of a worker of which nothing is known: some short tasks have to
// show first that its tasks are.
func newPace() pace { return pace{average: 10 * shortTask} }

// ahead is how many attempts the worker may be given beyond its slots now.
func (p *pace) ahead() int {
	if p.average > shortTask {
		return 0
	}
	return p.prefetch
}

// ran takes up how long a task took, and reports whether that changes ahead.
func (p *pace) ran(took time.Duration) (changed bool) {
	before := p.ahead()
	p.average += (took - p.average) / 8
	return p.ahead() != before
}

// ran notes that a worker completed a task.
func (s *Sequencer) ran(id fsm.WorkerID, tookMS uint32) {
	if w := s.workers[id]; w != nil && w.ran(time.Duration(tookMS)*time.Millisecond) {
		s.sched.SetPrefetch(scheduler.WorkerID(id), w.ahead())
	}
}
