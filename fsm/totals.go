package fsm

import (
	"errors"
	"fmt"
)

// totalsLevel is the level from which on ends are counted. Builds of lower ones don't know the
// totals: neither the digest nor a snapshot may have them before.
const totalsLevel Level = 4

// totals has how many tasks and jobs have ended since the cluster has totalsLevel. A number only
// grows: a task or job that is revived counts again when it ends again, and those that were
// forgotten stay counted.
type totals struct {
	tasks [numStates - Completed]uint64       // by their state, from Completed on
	jobs  [numJobStates - JobCompleted]uint64 // likewise, from JobCompleted on
}

// CountsEnds reports whether the cluster counts the tasks and jobs that end.
func (s *State) CountsEnds() bool { return s.level.current >= totalsLevel }

// EndedTasks is how many tasks have ended in a state, one that Terminal reports, since the cluster
// counts them.
func (t *totals) EndedTasks(in TaskState) uint64 { return t.tasks[in-Completed] }

// EndedJobs is EndedTasks for jobs.
func (t *totals) EndedJobs(as JobState) uint64 { return t.jobs[as-JobCompleted] }

// countTask counts a task that ends.
func (s *State) countTask(in TaskState) { s.countEnd(&s.totals.tasks[in-Completed]) }

// countJob counts a job that ends.
func (s *State) countJob(as JobState) { s.countEnd(&s.totals.jobs[as-JobCompleted]) }

func (s *State) countEnd(total *uint64) {
	if s.CountsEnds() {
		*total++
		s.mix(*total)
	}
}

func (t *totals) isZero() bool { return *t == totals{} }

// check checks that nothing was counted below the level.
func (t *totals) check(at Level) error {
	if !t.isZero() && at < totalsLevel {
		return fmt.Errorf("totals at level %d", at)
	}
	return nil
}

func (t *totals) fields(c *coder) {
	for i := range t.tasks {
		number(c, &t.tasks[i])
	}
	for i := range t.jobs {
		number(c, &t.jobs[i])
	}
}

// totals writes the frame of the totals. A cluster in which nothing was counted has none, so that
// the form of its snapshots is that of builds without totals.
func (f *frameWriter) totals(s *State) {
	if s.totals.isZero() {
		return
	}
	s.totals.fields(&f.c)
	f.frame(frameTotals)
}

// totals reads the frame, which is written only once, and only if something was counted.
func (f *frameReader) totals(d *decoder) {
	t := &f.s.totals
	again := !t.isZero()
	t.fields(&coder{d: d})
	if d.err == nil && (again || t.isZero()) {
		d.fail(errors.New("empty or second frame of totals"))
	}
}
