package fsm

import (
	"errors"
	"fmt"
)

// Check recomputes everything that the state maintains incrementally, and
// follows every reference. It runs on each restored snapshot and, in tests,
// after each entry. Its error names the first broken invariant.
func (s *State) Check() error {
	if err := s.checkJobs(); err != nil {
		return err
	}
	if err := s.keys.check(&s.jobs, s.nextJob); err != nil {
		return err
	}
	if err := s.checkpoints.check(&s.jobs); err != nil {
		return err
	}
	if err := s.workers.check(&s.jobs); err != nil {
		return err
	}
	if err := s.notifications.check(s.nextJob); err != nil {
		return err
	}
	if err := s.deadLetters.check(&s.jobs); err != nil {
		return err
	}
	if err := s.schedules.check(s.nextJob); err != nil {
		return err
	}
	if err := s.namedLimits.check(); err != nil {
		return err
	}
	if err := s.checkKeys(); err != nil {
		return err
	}
	if err := s.queues.check(); err != nil {
		return err
	}
	return s.checkIdentities()
}

func (s *State) checkIdentities() error {
	if err := s.identities.check(s.joinTokens.next); err != nil {
		return err
	}
	if err := s.joinTokens.check(); err != nil {
		return err
	}
	if err := s.trust.check(); err != nil {
		return err
	}
	if err := s.auditHeads.check(); err != nil {
		return err
	}
	if err := s.clusterName.check(); err != nil {
		return err
	}
	if err := s.totals.check(s.level.current); err != nil {
		return err
	}
	return s.backups.check()
}

func (s *State) checkJobs() error {
	live := 0
	for at, p := range s.jobs.pages {
		if at > 0 && s.jobs.pages[at-1].no >= p.no {
			return fmt.Errorf("page %d of the job table follows page %d", p.no, s.jobs.pages[at-1].no)
		}
		n := 0
		for i, j := range &p.jobs {
			if j == nil {
				continue
			}
			n++
			if want := JobID(p.no*jobPageSize + uint64(i)); j.id != want || j.id == 0 || j.id >= s.nextJob { //nolint:gosec // index
				return fmt.Errorf("job %d is at position %d", j.id, want)
			}
			if err := errors.Join(s.checkJob(j), s.checkNeeded(j)); err != nil {
				return fmt.Errorf("job %d: %w", j.id, err)
			}
		}
		if n != p.live || n == 0 {
			return fmt.Errorf("page %d of the job table has %d jobs, counted %d", p.no, n, p.live)
		}
		live += n
	}
	if live != s.jobs.live {
		return fmt.Errorf("job table has %d jobs, counted %d", live, s.jobs.live)
	}
	return nil
}

func (s *State) checkJob(j *job) error {
	if j.state == JobUploading {
		if k, ok := s.keys.get(j.key); !ok || k.job != j.id {
			return errors.New("upload without its key")
		}
	}
	counted := job{ordinary: j.ordinary}
	pending := make([]uint32, j.records.n)
	for i := range j.records.n {
		counted.count(j.records.at(i), i)
	}
	if err := j.checkWaits(pending); err != nil {
		return err
	}
	if counted.counts != j.counts {
		return fmt.Errorf("counts of tasks by state are %v, want %v", counted.counts, j.counts)
	}
	if counted.cleanupCounts != j.cleanupCounts {
		return fmt.Errorf("cleanup counts of tasks by state are %v, want %v", counted.cleanupCounts, j.cleanupCounts)
	}
	if counted.running != j.running {
		return fmt.Errorf("%d assigned tasks have a logged start, want %d", counted.running, j.running)
	}
	if j.state != JobUploading && (j.outcome == 0) != (j.openOrdinary() > 0) {
		return fmt.Errorf("outcome %v with %d open ordinary tasks", j.outcome, j.openOrdinary())
	}
	if j.outcome != 0 && !j.outcome.Terminal() || j.state == JobUploading && j.outcome != 0 {
		return fmt.Errorf("invalid outcome %v", j.outcome)
	}
	if j.state != JobUploading && j.state.Terminal() != (j.open() == 0) {
		return fmt.Errorf("is %v with %d open tasks", j.state, j.open())
	}
	if err := j.checkStopping(); err != nil {
		return err
	}
	if j.state == JobPending && j.counts[Assigned] > 0 {
		return errors.New("pending with assigned tasks")
	}
	if err := j.checkPolicies(); err != nil {
		return err
	}
	if err := errors.Join(j.checkNeeds(), j.checkGated()); err != nil {
		return err
	}
	for i := range j.records.n {
		if err := s.checkTask(j, i, pending[i]); err != nil {
			return fmt.Errorf("task %d: %w", i, err)
		}
	}
	return nil
}

var errNoPolicy = errors.New("unknown policy")

// checkPolicies checks the policies that the tasks were submitted with, by
// chunk: finding the chunk of each task would take longer than all other
// checks.
func (j *job) checkPolicies() error {
	policies := uint32(len(j.header.GetPolicies())) //nolint:gosec // bounded by the header
	for _, c := range j.chunks {
		if c.IsArray() {
			if c.part == 0 && c.array.Policy >= policies { // the next chunks belong to the same array
				return fmt.Errorf("array at task %d: %w", c.First, errNoPolicy)
			}
			continue
		}
		for k := range uint32(c.Len()) { //nolint:gosec // ≤ total
			if c.policy(k) >= policies {
				return fmt.Errorf("task %d: %w", c.First+k, errNoPolicy)
			}
		}
	}
	return nil
}

// checkStopping checks that a stopping job has no task that would still start,
// except those that may.
func (j *job) checkStopping() error {
	if !j.stopping || j.openOrdinary() == j.counts[Assigned]-j.cleanupCounts[Assigned] {
		return nil
	}
	for i := range min(j.ordinary, j.records.n) {
		if st := j.records.at(i).state; !st.Terminal() && st != Assigned && !j.outlivesStop(i) {
			return fmt.Errorf("stopping with tasks that have not started: task %d is %v", i, st)
		}
	}
	return nil
}

// checkWaits counts how the tasks of each array ended, and the dependencies of
// each task whose condition does not hold.
func (j *job) checkWaits(pending []uint32) error {
	for i := uint32(0); i < j.records.n; i += j.span(i) {
		var count unitCount
		for k := i; k < i+j.span(i); k++ {
			if k >= j.records.n {
				count.open++
				continue
			}
			r := j.records.at(k)
			count.move(nil, count.of(r.state, r.cause), 1)
		}
		if at, within := j.arrayAt(i); within && j.ends[at] != count {
			return fmt.Errorf("array at task %d has %s, counted %s", i, count.text(), j.ends[at].text())
		}
		next, most := j.dependents(i), j.tolerance(i)
		for at, head := range next.heads {
			f := next.condition(at).fate(count, most)
			if f == holds {
				continue
			}
			for k := head; k < head+j.span(head); k++ {
				pending[k]++
				if f != waits && j.records.at(k).state == Blocked {
					return fmt.Errorf("task %d waits for task %d, which has %s", k, i, count.text())
				}
			}
		}
	}
	return nil
}

func (s *State) checkTask(j *job, i, pending uint32) error {
	r := j.records.at(i)
	if j.updates.of(i).policy > j.policies() { // 0: as submitted
		return errNoPolicy
	}
	if j.state != JobUploading && r.pending != pending {
		return fmt.Errorf("waits for %d tasks, counted %d", pending, r.pending)
	}
	switch {
	case j.state == JobUploading && r.state != Blocked:
		return fmt.Errorf("is %v in an upload", r.state)
	case r.state == Blocked && j.state != JobUploading && r.pending == 0 && !j.closed(i):
		return errors.New("blocked without open dependencies")
	case j.waiting() && !j.isCleanup(i) && r.state != Blocked && !r.state.Terminal():
		return fmt.Errorf("is %v while the job waits for others", r.state)
	case j.isCleanup(i) && j.outcome == 0 && (r.state == Pending || r.state == Assigned || r.state == Scheduled || r.state == Completed):
		return fmt.Errorf("cleanup task is %v with %d open ordinary tasks", r.state, j.openOrdinary())
	case r.state != Blocked && !r.state.Terminal() && r.pending > 0 && (j.revived == 0 || !j.hasConditions()):
		return fmt.Errorf("is %v with %d open dependencies", r.state, r.pending)
	case r.state == Scheduled && r.attempt == 0 && (r.ended == 0 || r.ended != j.updates.of(i).notBefore):
		return errors.New("scheduled without a time")
	case r.state == Assigned && (r.attempt == 0 || s.workers.get(r.worker) == nil):
		return fmt.Errorf("assigned to unknown worker %d", r.worker)
	}
	if r.note == 0 {
		return nil
	}
	return j.notes.check(r.note)
}
