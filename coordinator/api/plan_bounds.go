package api

import (
	"cmp"
	"maps"
	"slices"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// Codes of bounds: see docs/plan.md.
const (
	boundPath        = "critical_path"
	boundMaxParallel = "max_parallel"
	boundSlots       = "slots"
	boundWorkers     = "workers"
	boundResource    = "resource"
	boundQueue       = "queue"
	boundQueueMax    = "queue_resource"
	boundLimit       = "limit"
)

// bounds adds the least times that follow from single reasons. What a job waits for in the
// end is the longest of them. Run times must be known.
func (p *plan) bounds() {
	if !p.known {
		return
	}
	add := func(code, name string, s spec.Span) {
		if s.High > 0 {
			p.resp.Bounds = append(p.resp.Bounds, &dtaskv1.PlanBound{Code: code, Name: name, Time: planTime(s)})
		}
	}
	add(boundPath, "", p.graph.CriticalPath(p.takes).Takes)
	add(boundSlots, "", share(p.graph.Work(p.takes), float64(p.planner.Slots())))
	add(boundQueue, fsm.QueueOf(p.header), share(p.graph.Work(p.takes), float64(p.planner.MaxRunning())))
	classes, resources, uses := make(map[uint32]*demandSum), make(map[string]*demandSum), make(map[string]*demandSum)
	var order []uint32
	for i, t := range p.tasks {
		if n := p.graph.Rounds(i); t.GetMaxParallel() > 0 && n > 1 {
			add(boundMaxParallel, t.GetId(), p.graph.Takes(i, p.takes[i]))
		}
		if p.graph.Skipped(i) {
			continue
		}
		id, n := p.planner.Class(t.GetPolicy()), float64(spec.TasksOf(t))
		if classes[id] == nil {
			classes[id] = &demandSum{first: i}
			order = append(order, id)
		}
		classes[id].add(p.takes[i], n)
		for _, use := range p.policy(i).GetUses() {
			if uses[use] == nil {
				uses[use] = new(demandSum)
			}
			uses[use].add(p.takes[i], n)
		}
		if len(p.policy(i).GetAlternatives()) > 0 {
			continue // none of its resources bounds it
		}
		for name, amount := range p.policy(i).GetResources() {
			if resources[name] == nil {
				resources[name] = new(demandSum)
			}
			resources[name].add(p.takes[i], n*float64(amount))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		add(boundResource, name, resources[name].over(p.planner.Total(name)))
		if most, limited := p.planner.Max(name); limited {
			add(boundQueueMax, name, resources[name].over(float64(most)))
		}
	}
	for _, use := range slices.Sorted(maps.Keys(uses)) {
		add(boundLimit, use, uses[use].within(p.planner.Limit(use)))
	}
	for _, id := range order {
		c := classes[id]
		t := p.tasks[c.first]
		if x := p.byClass[id]; x.GetWorkers() < p.resp.GetWorkers() || p.fitBelowTotals(c.first, id) {
			add(boundWorkers, t.GetId(), c.over(float64(p.fitting[id])))
		}
	}
	slices.SortStableFunc(p.resp.GetBounds(), func(a, b *dtaskv1.PlanBound) int {
		return cmp.Compare(b.GetTime().GetHighMs(), a.GetTime().GetHighMs())
	})
	p.resp.Bounds = p.resp.GetBounds()[:min(len(p.resp.GetBounds()), maxPlanClasses)]
}

// fitBelowTotals reports whether the workers can run fewer tasks of a class at the same time than
// all their slots and resources together would let: each worker has some left over, or what the
// alternatives of the tasks take bounds them.
func (p *plan) fitBelowTotals(first int, class uint32) bool {
	total := float64(p.planner.Slots())
	if x := p.policy(first); len(x.GetAlternatives()) == 0 {
		for name, amount := range x.GetResources() {
			total = min(total, p.planner.Total(name)/float64(max(amount, 1)))
		}
	}
	return float64(p.fitting[class]) < total
}

// demandSum is how much time of something a job needs: its milliseconds, times an amount.
type demandSum struct {
	low, high float64
	tasks     float64 // or amounts of them
	shortest  spec.Span
	first     int // of the entries that it is about
}

func (d *demandSum) add(takes spec.Span, times float64) {
	d.low += float64(takes.Low) * times
	d.high += float64(takes.High) * times
	if d.tasks == 0 || takes.Low < d.shortest.Low {
		d.shortest.Low = takes.Low
	}
	if d.tasks == 0 || takes.High < d.shortest.High {
		d.shortest.High = takes.High
	}
	d.tasks += times
}

// within returns how long the tasks that use a limit take at least: what it lets run at once
// bounds it, or how many may start. After the burst, the last of the others starts when there is a
// token for it, and then it runs.
func (d *demandSum) within(l fsm.LimitSettings) spec.Span {
	s := d.over(float64(l.Running))
	if late := d.tasks - float64(l.Burst); l.Rate > 0 && late > 0 {
		wait := int64(late * float64(l.PeriodMS) / float64(l.Rate))
		s = spec.Span{Low: max(s.Low, wait+d.shortest.Low), High: max(s.High, wait+d.shortest.High), Bounded: true}
	}
	return s
}

// over returns how long it takes at least if so much is there at a time.
func (d *demandSum) over(total float64) spec.Span {
	if total <= 0 {
		return spec.Span{}
	}
	return spec.Span{Low: int64(d.low / total), High: int64(d.high / total), Bounded: true}
}

// share divides a time among a number.
func share(s spec.Span, among float64) spec.Span {
	d := demandSum{low: float64(s.Low), high: float64(s.High)}
	return d.over(among)
}
