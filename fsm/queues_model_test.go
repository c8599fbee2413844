package fsm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// modelQueues are the queues of the reference model.
type modelQueues struct{ byName map[string]*modelQueue }

type modelQueue struct {
	version          uint32
	settings, by     string
	created, changed int64
}

func (m *modelQueues) has(name string) bool {
	return name == "" || name == "default" || m.byName[name] != nil
}

func (w *model) queue(op Op) (r string, ok bool) {
	switch op := op.(type) {
	case *SetQueue:
		return w.setQueue(op), true
	case *DeleteQueue:
		return w.deleteQueue(op), true
	case *MoveJob:
		return w.moveJob(op), true
	}
	return "", false
}

func (w *model) setQueue(op *SetQueue) string {
	for i, m := range op.Max {
		if m.Name == "" || m.Amount < 1 || i > 0 && strings.Compare(op.Max[i-1].Name, m.Name) >= 0 {
			return "malformed"
		}
	}
	for i, l := range op.Require {
		if l.Key == "" || i > 0 && strings.Compare(op.Require[i-1].Key, l.Key) >= 0 {
			return "malformed"
		}
	}
	p := op.Pause
	if badModelName(op.Name) || op.Weight < 1 || op.Weight > 10_000 || op.Rate > 0 && (op.Burst == 0 || op.PeriodMS == 0 || op.PeriodMS > 86_400_000) || op.Rate == 0 && op.Burst+op.PeriodMS > 0 ||
		op.AtMS < 1 || p.AtMS == 0 && (p.By != "" || p.Reason != "") || len(p.Reason) > maxText {
		return "malformed"
	}
	q := &modelQueue{version: 1, settings: fmt.Sprint(op.QueueSettings, p), by: op.By, created: op.AtMS, changed: op.AtMS}
	old := w.queues.byName[op.Name]
	switch {
	case old != nil && old.settings == q.settings:
		return "accepted"
	case op.IfVersion != 0 && (old == nil || old.version != op.IfVersion):
		return "version mismatch"
	case old != nil:
		q.version, q.created = old.version+1, old.created
	}
	w.queues.byName[op.Name] = q
	return "accepted"
}

func (w *model) deleteQueue(op *DeleteQueue) string {
	q := w.queues.byName[op.Name]
	switch {
	case q == nil:
		return "queue not found"
	case op.IfVersion != 0 && op.IfVersion != q.version:
		return "version mismatch"
	}
	if op.Name != "default" {
		for _, j := range w.jobs {
			if j.state != "uploading" && !j.hasEnded() && j.queue == op.Name {
				return "wrong state"
			}
		}
		for _, x := range w.schedules.list {
			if x.form.queue == op.Name {
				return "wrong state"
			}
		}
	}
	delete(w.queues.byName, op.Name)
	return "accepted"
}

func (w *model) moveJob(op *MoveJob) string {
	j := w.sealed(op.Job)
	switch {
	case j == nil:
		return "job not found"
	case badModelName(op.Queue):
		return "malformed"
	case !w.queues.has(op.Queue):
		return "queue not found"
	case w.unmet(j, op.Precondition) != "":
		return w.unmet(j, op.Precondition)
	case j.hasEnded():
		return "already ended"
	}
	if j.queue = op.Queue; op.Queue == "default" {
		j.queue = ""
	}
	w.movedJobs = append(w.movedJobs, fmt.Sprint(j.id))
	w.changed(j, op.Precondition, 0)
	return "accepted"
}

// compare returns the differences between the queues of a state and of the reference
// model.
func (m *modelQueues) compare(s *State) string {
	var got, want []string
	for q := range s.Queues() {
		got = append(got, fmt.Sprint(q.Name, q.Version, fmt.Sprint(q.QueueSettings, q.Pause), q.By, q.CreatedMS, q.ChangedMS))
		if s.Queue(q.Name) != q {
			return "queue " + q.Name + " is not found by its name"
		}
	}
	for name, q := range m.byName {
		want = append(want, fmt.Sprint(name, q.version, q.settings, q.by, q.created, q.changed))
	}
	slices.Sort(want)
	if !slices.IsSorted(got) {
		return fmt.Sprintf("queues are out of order: %v", got)
	}
	return cmp.Diff(want, got)
}
