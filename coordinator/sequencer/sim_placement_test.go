package sequencer_test

import (
	"fmt"
	"slices"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// simRules are rules about the label zone=a, which some workers of the simulation have, and
// about the label that each has by itself. Worker w0, which always exists, fulfills all.
var simRules = []*dtaskv1.LabelRule{
	{Name: "zone"},
	{Name: "zone", Values: []string{"a", "b"}},
	{Name: "zone", Values: []string{"b"}, Not: true},
	{Name: fsm.WorkerLabel, Values: []string{"w1", "w2"}, Not: true},
	{Name: fsm.WorkerLabel, Values: []string{"w0", "w1"}},
}

// placement chooses what a policy requires of labels.
func (c *sim) placement(p *dtaskv1.TaskPolicy) {
	if c.chance(20) {
		p.Prefer = []*dtaskv1.LabelRule{{Name: "zone", Values: []string{"a"}, Not: c.chance(50)}}
	}
	if c.chance(30) {
		p.Place = dtaskv1.PlacementStrategy(c.rng.IntN(4))
	}
	if c.chance(20) {
		p.Affinity = []string{"a", "b", "c"}[c.rng.IntN(3)]
	}
	switch {
	case c.chance(20):
		p.Require = map[string]string{"zone": "a"}
	case c.chance(30):
		p.Rules = []*dtaskv1.LabelRule{simRules[c.rng.IntN(len(simRules))]}
	}
}

// labels returns the labels of a worker, sorted by key.
func (w *simWorker) labels() []fsm.Label {
	list := []fsm.Label{{Key: fsm.WorkerLabel, Value: w.name}}
	if w.pool {
		list = slices.Insert(list, 0, fsm.Label{Key: "pool", Value: "none"})
	}
	if w.reserved {
		list = slices.Insert(list, 0, fsm.Label{Key: fsm.ReservedLabel})
	}
	if w.zone != "" {
		list = append(list, fsm.Label{Key: "zone", Value: w.zone})
	}
	return list
}

// checkPlacement checks that a worker that got an attempt has what the task requires.
func (w *simWorker) checkPlacement(it fsm.AssignItem) {
	var p *dtaskv1.TaskPolicy
	w.c.log.truth.Read(func(s *fsm.State, _ uint64) { p = s.Policy(it.TaskRef) })
	if lacks := lacking(p, w.labels()); lacks != "" {
		w.c.fail("worker %s with labels %v got %v, which requires %s", w.name, w.labels(), it.AttemptRef, lacks)
	}
}

// placed checks that a worker had all that a task requires when an attempt was assigned to it,
// after the changes in the same entry.
func (l *simLedger) placed(s *fsm.State, it fsm.AssignItem) {
	w, p := s.Worker(it.Worker), s.Policy(it.TaskRef)
	t, _ := s.Task(it.TaskRef)
	job, _ := s.Job(it.Job)
	if lacks := unfit(w, p, s.Queue(fsm.QueueOf(job.Header)), t.Alternative); lacks != "" {
		l.c.fail("%v was assigned to worker %+v, and requires %s", it.AttemptRef, *w, lacks)
	}
}

// unfit returns what a worker lacks for an alternative of a task in a queue, which may be nil; "" if
// nothing.
func unfit(w *fsm.Worker, p *dtaskv1.TaskPolicy, q *fsm.Queue, alternative uint8) string {
	var required []fsm.Label // by the queue
	if q != nil {
		required = q.Require
	}
	lacks := lacking(p, w.Labels)
	for _, need := range required {
		if !slices.Contains(w.Labels, need) {
			lacks = "of its queue " + need.Key
		}
	}
	for _, r := range w.Resources {
		if cpu := cpuOf(p, alternative); r.Name == "cpu" && cpu > r.Amount {
			lacks = fmt.Sprintf("%d of cpu", cpu)
		}
	}
	if alternative == 0 && p.GetResources()["gpu"] > 0 {
		lacks = "gpu"
	}
	chooses := len(p.GetRequire())+len(required) > 0 || slices.ContainsFunc(p.GetRules(), func(r *dtaskv1.LabelRule) bool { return !r.GetNot() })
	if w.IsReserved() && !chooses {
		lacks = "no label of a reserved worker"
	}
	return lacks
}

// lacking returns which label of a worker a policy misses; "" if none.
func lacking(p *dtaskv1.TaskPolicy, labels []fsm.Label) string {
	for name, value := range p.GetRequire() { // unordered: any of them is an error
		if !slices.Contains(labels, fsm.Label{Key: name, Value: value}) {
			return name + "=" + value
		}
	}
	for _, r := range p.GetRules() {
		found := slices.ContainsFunc(labels, func(l fsm.Label) bool {
			return l.Key == r.GetName() && (len(r.GetValues()) == 0 || slices.Contains(r.GetValues(), l.Value))
		})
		if found == r.GetNot() {
			return r.String()
		}
	}
	return ""
}
