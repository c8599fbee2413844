package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dtask/dtask/test/chaos/history"
)

// mostCounted is how many missed ticks are counted: so many mean at least as many.
const mostCounted = 1000

// A definition is one life of a schedule, from its set to its deletion.
type definition struct {
	name    string
	created int64
	id      uint64 // 0 = no job of it was read: two of a frozen clock have one time
}

// tickAt is a tick of a schedule.
type tickAt struct {
	definition
	at int64
}

// ticks is what clients read about ticks, and the jobs of them.
type ticks struct {
	a     *account
	reads map[definition][]history.Call // in order of their calls
	jobs  map[uint64]map[int64][]string // by schedule and tick
	ids   map[uint64]*Plan
}

func newTicks(a *account) *ticks {
	t := &ticks{
		a: a, reads: make(map[definition][]history.Call),
		jobs: make(map[uint64]map[int64][]string), ids: make(map[uint64]*Plan),
	}
	for id, f := range a.finals {
		if f.Run == nil {
			continue
		}
		if t.jobs[f.Run.ID] == nil {
			t.jobs[f.Run.ID] = make(map[int64][]string)
		}
		t.jobs[f.Run.ID][f.Run.At] = append(t.jobs[f.Run.ID][f.Run.At], id)
		t.ids[f.Run.ID] = a.plans[f.Name]
	}
	for _, c := range a.calls {
		if c.Kind == history.ReadSchedule && c.Verdict == history.OK {
			d := definition{c.Schedule, c.Created, t.idOf(c)}
			t.reads[d] = append(t.reads[d], c)
		}
	}
	return t
}

// idOf returns the number of the schedule that was read, as its jobs know it.
func (t *ticks) idOf(c history.Call) uint64 {
	for _, x := range c.Ticks {
		if f := t.a.finals[x.Job]; f != nil && f.Run != nil {
			return f.Run.ID
		}
	}
	return 0
}

// ticks checks that each tick has at most one job, and that each one that clients know to be
// decided has one unless it was reported as skipped, or the schedule was paused or set.
func (a *account) ticks() {
	t := newTicks(a)
	t.once()
	for _, d := range slices.SortedFunc(maps.Keys(t.reads), func(x, y definition) int {
		return cmp.Or(cmp.Compare(x.name, y.name), cmp.Compare(x.created, y.created), cmp.Compare(x.id, y.id))
	}) {
		t.outcomes(d)
		t.unread(d)
		t.gaps(d)
	}
}

// once checks that each tick is one of its schedule and has one job.
func (t *ticks) once() {
	for id, byTick := range t.jobs {
		for at, jobs := range byTick {
			where := fmt.Sprintf("schedule %d, tick %d", id, at)
			if len(jobs) > 1 {
				slices.Sort(jobs)
				t.a.faults.add(Duplicated, where, "jobs %v are runs of one tick", jobs)
			}
			if p := t.ids[id]; p == nil || p.Every == 0 || at%p.Every.Milliseconds() != 0 {
				t.a.faults.add(Unexpected, where, "job %s ran for a tick that the schedule does not have", jobs[0])
			}
		}
	}
}

// outcomes checks that what was read of each tick never changes, is true, and was not decided
// early.
func (t *ticks) outcomes(d definition) {
	read := make(map[int64]history.Tick)
	for _, c := range t.reads[d] {
		for _, x := range c.Ticks {
			where := fmt.Sprintf("schedule %s, tick %d", d.name, x.At)
			if before, known := read[x.At]; known {
				if before != x {
					t.a.faults.add(Backwards, where, "read as %+v and later as %+v", before, x)
				}
				continue
			}
			read[x.At] = x
			if early := time.Duration(x.At-c.Wall) * time.Millisecond; c.Wall > 0 && early > 0 && !t.a.clocksWrong(t.before(d, x.At), c.Return) {
				t.a.faults.add(Disorder, where, "read as %s %v before its time", x.Became, early)
			}
			f, jobs := t.a.finals[x.Job], t.jobs[d.id][x.At]
			switch {
			case x.Became == history.TickRan && (f == nil || f.Run == nil || f.Run.At != x.At || f.Run.ID != d.id || f.Name != d.name):
				t.a.faults.add(Lost, where, "it ran as job %s, which is missing or of another tick", x.Job)
			case x.Became != history.TickRan && len(jobs) > 0:
				t.a.faults.add(Unexpected, where, "read as %s, and job %s ran", x.Became, jobs[0])
			}
		}
	}
}

// unread checks that no job ran for a tick that lies between two that one read showed in a
// row.
func (t *ticks) unread(d definition) {
	known := make(map[int64]bool)
	for _, c := range t.reads[d] {
		for i := 1; i < len(c.Ticks); i++ {
			from, to := c.Ticks[i-1].At, c.Ticks[i].At
			if known[to] {
				continue
			}
			known[to] = true
			for at, jobs := range t.jobs[d.id] {
				if from < at && at < to {
					t.a.faults.add(Unexpected, fmt.Sprintf("schedule %s, tick %d", d.name, at), "job %s ran, and a read showed only the ticks before and after", jobs[0])
				}
			}
		}
	}
}

// gaps checks that no tick is missing between two that one read showed in a row, except
// those that were counted as missed, and those of a pause or before a change of the schedule:
// each change explains one gap.
func (t *ticks) gaps(d definition) {
	p := t.a.plans[d.name]
	if p == nil || p.Every == 0 {
		return // once reports its jobs
	}
	used, known := make(map[int]bool), make(map[int64]bool)
	for _, c := range t.reads[d] {
		for i := 1; i < len(c.Ticks); i++ {
			from, to := c.Ticks[i-1], c.Ticks[i]
			if known[to.At] {
				continue
			}
			known[to.At] = true
			missing := (to.At-from.At)/p.Every.Milliseconds() - 1
			if missing == int64(to.Earlier) || to.Earlier >= mostCounted && missing > mostCounted || t.explained(d, from.At, c, used) {
				continue
			}
			t.a.faults.add(Lost, fmt.Sprintf("schedule %s, tick %d", d.name, to.At),
				"%d ticks since %d have no outcome, of which %d were reported as missed", missing, from.At, to.Earlier)
		}
	}
}

// explained reports whether a change of a schedule explains that ticks after one have no
// outcome: it may have had its effect after the last read that did not show that tick, and
// before the end of the first one that showed the next tick.
func (t *ticks) explained(d definition, after int64, first history.Call, used map[int]bool) bool {
	since := t.before(d, after)
	for _, c := range t.a.calls {
		change := c.Kind == history.SetSchedule || c.Kind == history.ResumeSchedule
		if change && c.Schedule == d.name && c.Verdict != history.Fail && !used[c.N] && c.Call < first.Return && c.Return > since {
			used[c.N] = true
			return true
		}
	}
	return false
}

// before returns when the last read began that shows no tick from one on: it was decided later.
func (t *ticks) before(d definition, at int64) (since time.Duration) {
	none := definition{d.name, d.created, 0}
	for _, c := range slices.Concat(t.reads[none], t.reads[d]) {
		if len(c.Ticks) == 0 || c.Ticks[len(c.Ticks)-1].At < at {
			since = max(since, c.Call)
		}
	}
	return since
}

// count counts the ticks that ran, that were reported as skipped, and between two ticks that
// one read showed.
func (t *ticks) count() (ran, skipped, judged int) {
	for _, byTick := range t.jobs {
		ran += len(byTick)
	}
	seen, pairs := make(map[tickAt]bool), make(map[tickAt]bool)
	for d, reads := range t.reads {
		for _, c := range reads {
			for i, x := range c.Ticks {
				at := tickAt{d, x.At}
				if !seen[at] && x.Became != history.TickRan {
					skipped++
				}
				seen[at] = true
				if i > 0 {
					pairs[at] = true
				}
			}
		}
	}
	return ran, skipped, len(pairs)
}
