package fsm

import "testing"

// wantCancelled checks that tasks of job 1 were cancelled, each with its reason.
func wantCancelled(w *world, what string, want map[uint32]string) {
	w.t.Helper()
	for i, why := range want {
		v, _ := w.s.Task(ref(1, i))
		if got := w.s.Result(ref(1, i)).Error; v.State != Cancelled || got != why {
			w.t.Errorf("%s: task %d: got %v with reason %q, want cancelled with reason %q", what, i, v.State, got, why)
		}
	}
}

// cascade is a failure with dependents. The jobs continue after failures unless
// stopped is set: nothing else may cancel the dependents.
type cascade struct {
	name      string
	plan      *jobPlan
	completes []uint32 // first
	fails     uint32   // then
	cancelled map[uint32]string
	left      map[uint32]TaskState
	stopped   bool
}

func cascades() []cascade {
	return []cascade{
		{name: "a chain", plan: chain(4), cancelled: map[uint32]string{
			1: "dependency t0 failed", 2: "dependency t1 failed", 3: "dependency t2 failed",
		}},
		{name: "the end of a chain", plan: chain(4), completes: []uint32{0}, fails: 1, cancelled: map[uint32]string{
			2: "dependency t1 failed", 3: "dependency t2 failed",
		}, left: map[uint32]TaskState{0: Completed}},
		{name: "the top of a diamond", plan: diamond(), cancelled: map[uint32]string{
			1: "dependency t0 failed", 2: "dependency t0 failed", 3: "dependency t2 failed",
		}},
		{
			name: "one side of a diamond", plan: diamond(), completes: []uint32{0}, fails: 1,
			cancelled: map[uint32]string{3: "dependency t1 failed"}, left: map[uint32]TaskState{0: Completed, 2: Pending},
		},
		{
			name: "a diamond with a tail", plan: plan(nil, []uint32{0}, []uint32{0}, []uint32{1, 2}, []uint32{3}, []uint32{4}),
			completes: []uint32{0, 2}, fails: 1,
			cancelled: map[uint32]string{3: "dependency t1 failed", 4: "dependency t3 failed", 5: "dependency t4 failed"},
			left:      map[uint32]TaskState{2: Completed},
		},
		{
			name: "one of two chains", plan: plan(nil, []uint32{0}, []uint32{1}, nil, []uint32{3}, []uint32{4}),
			cancelled: map[uint32]string{1: "dependency t0 failed", 2: "dependency t1 failed"},
			left:      map[uint32]TaskState{3: Pending, 4: Blocked, 5: Blocked},
		},
		{
			name: "a chain of a job that stops", plan: chain(3), stopped: true,
			cancelled: map[uint32]string{1: "dependency t0 failed", 2: "dependency t1 failed"},
		},
		{
			name: "one of two chains of a job that stops", plan: plan(nil, []uint32{0}, []uint32{1}, nil, []uint32{3}), stopped: true,
			cancelled: map[uint32]string{
				1: "dependency t0 failed", 2: "dependency t1 failed", 3: "job stopped: task t0 failed", 4: "job stopped: task t0 failed",
			},
		},
	}
}

// If a task ends without completing, its dependents at any distance do not run, and
// each names its failed dependency. Other tasks continue.
func TestAFailureCancelsDependentsAtAnyDistance(t *testing.T) {
	t.Parallel()
	ends := map[string]func(w *world, i uint32) Op{
		"failed":    func(w *world, i uint32) Op { return failed(w.assign(i, 1), NextFailed) },
		"dead":      func(w *world, i uint32) Op { return failed(w.assign(i, 1), NextDead) },
		"cancelled": func(_ *world, i uint32) Op { return &CancelTask{Task: ref(1, i)} },
	}
	for _, c := range cascades() {
		for how, end := range ends {
			if c.stopped && how == "cancelled" {
				continue // a cancelled task does not stop the job
			}
			w := newWorld(t).do(worker(1))
			p := *c.plan
			if !c.stopped {
				p.onFailure = continueOnFailure
			}
			w.submit(&p)
			for _, i := range c.completes {
				w.do(complete(w.assign(i, 1)))
			}
			w.do(end(w, c.fails))
			wantCancelled(w, c.name+", "+how, c.cancelled)
			for i, want := range c.left {
				if got := w.state(1, i); got != want {
					t.Errorf("%s, %s: task %d: got %v, want %v", c.name, how, i, got, want)
				}
			}
		}
	}
}

// A waiting array is cancelled as a whole, and so are its dependents.
func TestAFailureCancelsADependentArrayAndItsDependents(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	p := going(plan(nil))
	p.addArray(arrayPlan{Array: Array{Name: "a", Deps: []uint32{0}, Ranges: []IndexRange{{0, 1, 3}}, Items: 3, Chunk: 1}})
	p.tasks = append(p.tasks, taskPlan{name: "after", deps: []uint32{1}}, taskPlan{name: "last", deps: []uint32{4}})
	w.submit(p)
	w.do(failed(w.assign(0, 1), NextDead))
	const first = "dependency t0 failed"
	wantStates(w, "at the end", Dead, Cancelled, Cancelled, Cancelled, Cancelled, Cancelled)
	wantCancelled(w, "at the end", map[uint32]string{1: first, 2: first, 3: first, 5: "dependency after failed"})
}
