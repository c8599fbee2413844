package fsm

import (
	"cmp"
	"math"
	"slices"
)

// revival is what a revival changes.
type revival struct {
	chosen []uint32      // the tasks to revive, ascending
	causes []causeChange // the tasks that are or stay cancelled, for another cause; ascending
	back   []bool        // by task: it is chosen
	stuck  uint32        // the requested task that could never become ready, if there is one
	arrays map[uint32]unitCount
}

// causeChange is a task and why it is cancelled from now on.
type causeChange struct {
	task  uint32
	cause cancelCause
}

// planRevival chooses the tasks to revive: the requested ones, and those that
// were cancelled because of others and can run again. It visits a task after
// all its dependencies. ok is false if a requested task could never become
// ready.
func (j *job) planRevival(asked []uint32) (p revival, ok bool) {
	p = revival{back: make([]bool, j.total), arrays: make(map[uint32]unitCount)}
	known, found := uint32(math.MaxUint32), [numFates]bool{} // the head whose dependencies found describes
	for i := range j.total {
		if i == j.ordinary && p.first() < j.ordinary {
			break // all cleanup tasks run again
		}
		r := j.records.at(i)
		if r.state == Completed || !r.state.Terminal() && (r.state != Blocked || !j.hasConditions()) {
			continue
		}
		_, named := slices.BinarySearch(asked, i)
		swept := len(asked) == 0 || r.state == Blocked || r.state == Cancelled && r.cause != causeUser
		if !named && !swept {
			continue
		}
		if head := j.head(i); head != known {
			known, found = head, [numFates]bool{}
			j.task(i).eachDep(func(dep uint32, when Condition) {
				found[when.fate(p.unit(j, dep), j.tolerance(dep))] = true
			})
		}
		switch free := !found[impossible] && !found[needless]; {
		case free && r.state.Terminal():
			p.back[i], p.chosen = true, append(p.chosen, i)
		case free:
		case named:
			p.stuck = i
			return p, false
		default:
			p.keep(i, r, found)
		}
	}
	return p, true
}

// Stuck is a task that can't run again, and the first reason.
type Stuck struct {
	Task, Dependency TaskRef
	Needless         bool // the task is not needed; else the dependency must be revived, too
}

// Stuck finds the first of some tasks that Revive could never make ready. They
// must be in a state in which they can be revived.
func (s *State) Stuck(id JobID, tasks []uint32) (stuck Stuck, found bool) {
	j := s.sealedJob(id)
	if j == nil {
		return stuck, false
	}
	p, ok := j.planRevival(tasks)
	if ok {
		return stuck, false
	}
	stuck.Task = TaskRef{id, p.stuck}
	j.task(p.stuck).eachDep(func(dep uint32, when Condition) {
		f := when.fate(p.unit(j, dep), j.tolerance(dep))
		if found || f != impossible && f != needless {
			return
		}
		found = true
		stuck.Dependency, stuck.Needless = TaskRef{id, dep}, f == needless
		for k := dep; k < dep+j.span(dep) && f == impossible; k++ {
			if j.records.at(k).failed() && !p.back[k] {
				stuck.Dependency.Index = k
				break
			}
		}
	})
	return stuck, found
}

// first is the first task that is revived or turns out not to be needed.
func (p *revival) first() uint32 {
	first := uint32(math.MaxUint32)
	if len(p.chosen) > 0 {
		first = p.chosen[0]
	}
	if len(p.causes) > 0 {
		first = min(first, p.causes[0].task)
	}
	return first
}

// keep leaves a task ended, or cancels a blocked one. found has what its
// dependencies mean for it: it may turn out that the task, which failed or was
// cancelled, was not needed, or the reverse.
func (p *revival) keep(i uint32, r *record, found [numFates]bool) {
	cause := r.cause
	switch {
	case r.state == Blocked && found[impossible], cause == causeSkipped && !found[needless]:
		cause = causeOther
	case !found[impossible]:
		cause = causeSkipped
	}
	if r.state == Blocked || cause != r.cause {
		p.causes = append(p.causes, causeChange{i, cause})
	}
}

// unit counts the tasks of a unit as they will be. All of them were visited.
func (p *revival) unit(j *job, head uint32) (c unitCount) {
	n := j.span(head)
	if n > 1 {
		if known, ok := p.arrays[head]; ok {
			return known
		}
	}
	for i := head; i < head+n; i++ {
		r := j.records.at(i)
		state, cause := r.state, r.cause
		if p.back[i] {
			state = Blocked
		} else if at, changes := slices.BinarySearchFunc(p.causes, i, func(c causeChange, i uint32) int { return cmp.Compare(c.task, i) }); changes {
			state, cause = Cancelled, p.causes[at].cause
		}
		c.move(nil, c.of(state, cause), 1)
	}
	if n > 1 {
		p.arrays[head] = c
	}
	return c
}
