package fsm

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// modelChange is the change of a task after its submission.
type modelChange struct {
	priority  dtaskv1.Priority // 0 = as submitted
	withJob   bool             // the priority is the job's
	retries   *uint32
	timeout   int64
	notBefore int64
}

// samePolicy reports how the policy of a task differs from the expected one.
func (t *modelTask) samePolicy(submitted, got *dtaskv1.TaskPolicy) string {
	want := proto.CloneOf(submitted)
	if t.priority != 0 {
		want.Priority = t.priority
	}
	if t.timeout != 0 {
		want.TimeoutMs = t.timeout
	}
	if t.retries != nil {
		want.Retry = &dtaskv1.RetryPolicy{Max: *t.retries}
	}
	if !proto.Equal(want, got) {
		return fmt.Sprintf("policy %v, want %v", got, want)
	}
	return ""
}

func (w *model) readied(j *modelJob, i int, t *modelTask) {
	if t.notBefore != 0 && t.attempt == 0 {
		t.state, t.due, t.ended = "scheduled", t.notBefore, 0
		w.sched = append(w.sched, fmt.Sprintf("%d/%d@0 due %d", j.id, i, t.due))
		return
	}
	t.state = "pending"
	w.ready = append(w.ready, fmt.Sprintf("%d/%d", j.id, i))
}

func (t *modelTask) fresh() bool {
	return t.attempt == 0 && (t.state == "blocked" || t.state == "scheduled" || t.state == "pending")
}

// wrong reports whether every replica must reject the update.
func wrong(op *Update) bool {
	return op.Set == 0 || op.WholeJob && (op.Task != 0 || op.Set&SetBody != 0) || op.Set&SetPriority != 0 && op.Priority == 0 ||
		op.Set&SetMaxRetries != 0 && op.MaxRetries > 1_000_000 || op.Set&SetTimeout != 0 && op.TimeoutMS <= 0 ||
		op.Set&SetNotBefore != 0 && op.NotBeforeMS < 0 || op.Set&SetBody != 0 && len(op.Body) > 0 && op.Body[0] == 0xff
}

func (w *model) update(op *Update) string {
	j := w.sealed(op.Job)
	if j == nil {
		return "job not found"
	}
	var list []int
	for i, t := range j.tasks {
		if t.fresh() && (op.WholeJob || uint32(i) == op.Task) {
			list = append(list, i)
		}
	}
	switch {
	case wrong(op):
		return "malformed"
	case w.unmet(j, op.Precondition) != "":
		return w.unmet(j, op.Precondition)
	case int(op.Task) >= len(j.tasks):
		return "task not found"
	case j.hasEnded():
		return "already ended"
	case len(list) == 0:
		return "wrong state"
	}
	before, ready := len(w.moved), 0
	for i, t := range j.tasks {
		if t.state == "pending" {
			ready++
		}
		if slices.Contains(list, i) {
			w.updateTask(j, i, op)
		}
	}
	if op.WholeJob && op.Set&SetNotBefore == 0 && ready > 0 && len(w.moved)-before == ready {
		w.moved = append(w.moved[:before], fmt.Sprintf("all of %d", j.id))
	}
	if op.WholeJob && op.Set&SetPriority != 0 {
		j.priority = op.Priority
	}
	w.changed(j, op.Precondition, 0)
	return "accepted"
}

func (w *model) updateTask(j *modelJob, i int, op *Update) {
	t := j.tasks[i]
	before, was := t.modelChange, t.state
	own := j.policies[t.policy].GetPriority() != 0 && t.priority == 0 || t.priority != 0 && !t.withJob
	if op.Set&SetPriority != 0 && (!op.WholeJob || !own) {
		t.priority, t.withJob = op.Priority, op.WholeJob
	}
	if op.Set&SetMaxRetries != 0 && (t.retries == nil || *t.retries != op.MaxRetries) {
		t.retries = &op.MaxRetries
	}
	if op.Set&SetTimeout != 0 {
		t.timeout = op.TimeoutMS
	}
	if op.Set&SetBody != 0 {
		t.body, t.newBody = string(op.Body), true
	}
	if op.Set&SetNotBefore != 0 && op.NotBeforeMS != t.notBefore && (was != "pending" || op.NotBeforeMS != 0) {
		t.notBefore = op.NotBeforeMS
		if was != "blocked" {
			w.readied(j, i, t)
		}
	}
	if was == "pending" && (t.modelChange != before || op.Set&SetBody != 0) {
		w.moved = append(w.moved, fmt.Sprintf("%d/%d", j.id, i))
	}
}

// update makes updates by users of tasks that have not started.
func (g *generator) update(s *State) Op {
	_, at := g.findRef(s, Blocked, Scheduled, Pending)
	o := &Update{Job: at.Job, Set: UpdateFields(1 + g.odd(int(allFields)-1, int(allFields)+3)), WholeJob: g.choose.one(3)}
	if !o.WholeJob || g.choose.one(25) {
		o.Task = at.Index
	}
	if o.WholeJob {
		o.Set &^= SetBody
	}
	o.Precondition = g.precondition()
	o.Priority = dtaskv1.Priority([]int{1, 2, 3, 4, 0}[g.odd(4, 5)])
	o.MaxRetries = []uint32{0, 1, 5, maxRetries, maxRetries + 1}[g.odd(4, 5)]
	o.TimeoutMS = []int64{1, 1000, 5000, 0}[g.odd(3, 4)]
	o.NotBeforeMS = []int64{0, 0, int64(g.choose(1000)), -1}[g.odd(3, 4)]
	if o.Set&SetBody != 0 {
		o.Body = [][]byte{nil, {0x2a, 1, 'x'}, {0x2a, 2, 'y', 'z'}, {0xff}}[g.odd(3, 4)]
	}
	if o.Set >= allFields { // no decoder accepts it
		o.Set = 0
	}
	return o
}

// unmet reports why a change must not be made, if that is because of its key or
// the version.
func (w *model) unmet(j *modelJob, p Precondition) string {
	switch {
	case w.keys[p.Key] != nil:
		return "idempotency key used for another request"
	case p.IfVersion != 0 && p.IfVersion != uint64(j.version):
		return "version mismatch"
	}
	return ""
}

func (w *model) changed(j *modelJob, p Precondition, purged uint32) {
	j.version++
	if p.Key != "" {
		w.keys[p.Key] = &modelKey{job: j.id, sealed: true, expires: p.KeyExpires, digest: p.Digest, version: j.version, purged: purged}
	}
}

// precondition is sometimes a key, sometimes a version, mostly neither.
func (g *generator) precondition() (p Precondition) {
	if g.choose.one(3) {
		p.IfVersion = uint64(g.choose(4))
	}
	if g.choose.one(2) {
		p.Key, p.KeyExpires, p.Digest = fmt.Sprintf("k%d", g.choose(12)), int64(g.choose(1000)), [16]byte{7}
	}
	return p
}
