package scheduler_test

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/dtask/dtask/scheduler"
)

// The model knows when quotas are saved no longer. For which task they are saved depends on what
// the scheduler has tried: of that, the model knows what is allowed, and at a turn by age also what
// must be.

// hasSeq reports whether a task has an entry with a seq.
func (m *model) hasSeq(ref scheduler.TaskRef, seq uint64) bool {
	return slices.ContainsFunc(m.ready, func(t modelTask) bool { return t.ref == ref && t.seq == seq })
}

// savesFor reports whether a task still waits, and nothing but capacity and quotas holds it back.
func (m *model) savesFor(k scheduler.Saved) bool {
	i := slices.IndexFunc(m.ready, func(t modelTask) bool { return t.seq == k.Seq })
	return i >= 0 && !m.limitFull(k.Class) && !m.queues[k.Queue].Paused && m.someCouldRun(k.Class)
}

func (m *model) someCouldRun(c scheduler.ClassID) bool {
	for _, w := range m.workers {
		if m.couldRun(w, c) {
			return true
		}
	}
	return false
}

// mayAllow reports whether the quotas of a queue are enough for a task if it is alone.
func (m *model) mayAllow(q scheduler.Queue, c scheduler.ClassID) bool {
	return !slices.ContainsFunc(q.Max, func(most scheduler.Quantity) bool {
		return amount(m.demands[c].Resources, most.Name) > most.Amount
	})
}

// isShort reports whether only the quotas of its queue hold back a task, which are enough for it
// if it is alone.
func (m *model) isShort(t modelTask) bool {
	q := m.queues[m.demands[t.class].Queue]
	return !q.Paused && !m.limitFull(t.class) && !m.mayStart(t.class, t.priority) && m.mayAllow(q, t.class) && m.someCouldRun(t.class)
}

// saveAtTurn compares the quotas that are saved from the start of a task on, before it takes its
// slot.
func (p *pair) saveAtTurn(t *rapid.T, started modelTask) {
	m := &p.model
	queue, most := m.demands[started.class].Queue, uint64(0)
	for _, x := range m.ready {
		if m.aged && m.demands[x.class].Queue == queue && x.seq < started.seq && m.isShort(x) && x.ref != started.ref {
			most = x.seq
			break
		}
	}
	had := slices.ContainsFunc(m.saved, func(k scheduler.Saved) bool { return k.Queue == queue })
	for _, k := range p.s.Saved() {
		if slices.Contains(m.saved, k) {
			continue
		}
		at := slices.IndexFunc(m.ready, func(x modelTask) bool { return x.seq == k.Seq })
		kept := slices.ContainsFunc(p.s.Kept(), func(x scheduler.Kept) bool { return x.Queue == k.Queue && x.Seq == k.Seq })
		switch {
		case at < 0 || m.ready[at].class != k.Class || m.demands[k.Class].Queue != k.Queue:
			t.Fatalf("quotas are saved for %+v, which does not wait", k)
		case slices.ContainsFunc(m.saved, func(x scheduler.Saved) bool { return x.Queue == k.Queue }):
			t.Fatalf("quotas are saved for %+v, and for another task of the queue", k)
		case m.queues[k.Queue].MaxRunning == 0 && len(m.queues[k.Queue].Max) == 0:
			t.Fatalf("quotas are saved for %+v, whose queue has none", k)
		case !kept && (!m.aged || k.Queue != queue || k.Seq > started.seq || !m.isShort(m.ready[at])):
			t.Fatalf("quotas are saved for %+v, which they do not hold back at a turn by age", k)
		}
	}
	m.saved = p.s.Saved()
	if most > 0 && !had && !slices.ContainsFunc(m.saved, func(k scheduler.Saved) bool { return k.Queue == queue }) {
		t.Fatalf("no quotas are saved at a turn by age although they hold back an older task with seq %d", most)
	}
}
