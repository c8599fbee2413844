package fsm

import (
	"errors"
	"fmt"
)

// Check recomputes the slow way what the state keeps incrementally, and looks
// at every reference. It is run on each restored snapshot and, in tests, after
// each entry. Its error names the first thing that does not hold.
func (s *State) Check() error {
	live := 0
	for at, p := range s.jobs.pages {
		if p == nil {
			continue
		}
		n := 0
		for i, j := range p.jobs {
			if j == nil {
				continue
			}
			n++
			if j.id != JobID(at*jobPageSize+i) || j.id >= s.nextJob { //nolint:gosec // indexes
				return fmt.Errorf("job %d stands at %d", j.id, at*jobPageSize+i)
			}
			if err := s.checkJob(j); err != nil {
				return fmt.Errorf("job %d: %w", j.id, err)
			}
		}
		if n != p.live || n == 0 {
			return fmt.Errorf("page %d of the job table has %d jobs, counts %d", at, n, p.live)
		}
		live += n
	}
	if live != s.jobs.live {
		return fmt.Errorf("job table has %d jobs, counts %d", live, s.jobs.live)
	}
	for id, w := range s.workers {
		if w == nil {
			continue
		}
		if got, ok := s.workerNames.get(w.Name); int(w.ID) != id || !ok || got != w.ID {
			return fmt.Errorf("worker %d is not found by its name %q", id, w.Name)
		}
	}
	return nil
}

func (s *State) checkJob(j *job) error {
	var counts [numStates]uint32
	pending := make([]uint32, j.records.n)
	for i := range j.records.n {
		counts[j.records.at(i).state]++
		for _, k := range j.succ.of(i) {
			if j.records.at(i).state != Completed {
				pending[k]++
			}
		}
	}
	if counts != j.counts {
		return fmt.Errorf("has tasks by state %v, counts %v", counts, j.counts)
	}
	if j.state != JobUploading && j.state.Terminal() != (j.open() == 0) {
		return fmt.Errorf("is %v with %d open tasks", j.state, j.open())
	}
	for i := range j.records.n {
		if err := s.checkTask(j, i, pending[i]); err != nil {
			return fmt.Errorf("task %d: %w", i, err)
		}
	}
	return nil
}

func (s *State) checkTask(j *job, i, pending uint32) error {
	r := j.records.at(i)
	if int(j.task(i).policy) >= len(j.header.GetPolicies()) {
		return errors.New("has no policy")
	}
	if j.state != JobUploading && r.pending != pending {
		return fmt.Errorf("waits for %d tasks, counts %d", pending, r.pending)
	}
	switch {
	case j.state == JobUploading && r.state != Blocked:
		return fmt.Errorf("is %v in an upload", r.state)
	case r.state == Blocked && j.state != JobUploading && r.pending == 0:
		return errors.New("is blocked by nothing")
	case r.state != Blocked && !r.state.Terminal() && r.pending > 0:
		return fmt.Errorf("is %v with %d dependencies open", r.state, r.pending)
	case r.state == Assigned && (r.attempt == 0 || s.worker(r.worker) == nil):
		return fmt.Errorf("is assigned to nobody (worker %d)", r.worker)
	}
	if r.note == 0 {
		return nil
	}
	return j.notes.check(r.note)
}

// check looks whether a note can be read.
func (n *notes) check(note uint32) error {
	at := note - 1
	if int(at>>16) >= len(n.pieces) || int(at&0xffff) >= len(n.pieces[at>>16]) {
		return fmt.Errorf("note %d is out of range", note)
	}
	d := decoder{b: n.pieces[at>>16][at&0xffff:]}
	kind := noteKind(d.byte())
	value := decoder{b: d.bytes()}
	if kind == noteResult {
		value.i64()
		if hash := int(value.byte()); hash > len(value.b) {
			d.fail(errTruncated)
		}
	}
	if kind != noteResult && kind != noteError {
		return fmt.Errorf("note of kind %d", kind)
	}
	return errors.Join(d.err, value.err)
}
