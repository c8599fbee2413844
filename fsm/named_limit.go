package fsm

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// LimitSettings are what an operator sets of a named limit: a bound on what runs, on what
// starts, or both.
type LimitSettings struct {
	Running  uint32 // attempts at once; 0 = unlimited
	Rate     uint32 // starts in each period; 0 = unlimited
	PeriodMS uint32 // 0 without a rate
	Burst    uint32 // starts at once; 0 without a rate
}

func (l *LimitSettings) fields(c *coder) {
	number(c, &l.Running)
	number(c, &l.Rate)
	number(c, &l.PeriodMS)
	number(c, &l.Burst)
}

func (l *LimitSettings) malformed() bool {
	return l.Running == 0 && l.Rate == 0 || malformedRate(l.Rate, l.PeriodMS, l.Burst)
}

// NamedLimit bounds the attempts of all tasks that use it. One with a name that ends in /*
// stands for a limit of its own for each key below it. The state machine stores limits and
// never counts: the leader's scheduler does. Values never change once they are in the state.
type NamedLimit struct {
	Name    string
	Version uint32 // starts at 1; each change adds 1
	LimitSettings
	By        string // name of the one that changed it last
	CreatedMS int64
	ChangedMS int64
}

// GetSettings returns what the limit allows; nil allows everything.
func (l *NamedLimit) GetSettings() LimitSettings {
	if l == nil {
		return LimitSettings{}
	}
	return l.LimitSettings
}

func (l *NamedLimit) fields(c *coder) {
	c.str(&l.Name)
	number(c, &l.Version)
	l.LimitSettings.fields(c)
	c.str(&l.By)
	c.i64(&l.CreatedMS)
	c.i64(&l.ChangedMS)
}

// keyed ends the names of limits that have a counter for each key.
const keyed = "/*"

func (l *NamedLimit) malformed() bool {
	return !isName(strings.TrimSuffix(l.Name, keyed)) || l.Version == 0 || l.LimitSettings.malformed() || len(l.By) > maxIdentityText ||
		l.CreatedMS <= 0 || l.ChangedMS <= 0
}

// LimitOf returns the name of the limit that decides about a name that a task uses:
// tenant/* for tenant/acme, and otherwise the name itself.
func LimitOf(use string) string {
	if name, _, found := strings.Cut(use, "/"); found {
		return name + keyed
	}
	return use
}

// namedLimits are all limits, ascending by name. The list never changes: it is replaced.
type namedLimits struct{ list []*NamedLimit }

func (t *namedLimits) at(name string) (at int, found bool) {
	return slices.BinarySearchFunc(t.list, name, func(l *NamedLimit, name string) int { return cmp.Compare(l.Name, name) })
}

// NamedLimit returns a limit by its own name, or nil. Shared: never change it.
func (t *namedLimits) NamedLimit(name string) *NamedLimit {
	if at, found := t.at(name); found {
		return t.list[at]
	}
	return nil
}

// NamedLimits iterates over the limits by name.
func (t *namedLimits) NamedLimits() iter.Seq[*NamedLimit] { return slices.Values(t.list) }

// knowsUses reports whether all limits that the policies of a job use exist.
func (t *namedLimits) knowsUses(h *dtaskv1.JobHeader) bool {
	for _, p := range h.GetPolicies() {
		for _, use := range p.GetUses() {
			if t.NamedLimit(LimitOf(use)) == nil {
				return false
			}
		}
	}
	return true
}

// namedLimitLevel is the level from which on tasks use limits that exist. Builds of lower
// ones know no limits, and must decide alike.
const namedLimitLevel Level = 3

// limitInUse reports whether a job that has not ended, or a schedule, uses a limit.
func (s *State) limitInUse(name string) bool {
	uses := func(h *dtaskv1.JobHeader) bool {
		return slices.ContainsFunc(h.GetPolicies(), func(p *dtaskv1.TaskPolicy) bool {
			return slices.ContainsFunc(p.GetUses(), func(use string) bool { return LimitOf(use) == name })
		})
	}
	for j := range s.jobs.all() {
		if j.state != JobUploading && !j.state.Terminal() && uses(j.header) {
			return true
		}
	}
	return slices.ContainsFunc(s.schedules.list, func(x *Schedule) bool { return uses(x.Header()) })
}

func (d *digester) mixNamedLimit(l *NamedLimit) {
	if l == nil {
		return
	}
	var e encoder
	l.fields(&coder{e: &e})
	d.mixBytes(e.b)
}

// put adds a limit or replaces the one of its name.
func (t *namedLimits) put(l *NamedLimit) {
	at, found := t.at(l.Name)
	list := slices.Clone(t.list)
	if found {
		list[at] = l
	} else {
		list = slices.Insert(list, at, l)
	}
	t.list = list
}

// limitsPerFrame keeps a frame far below the maximum.
const limitsPerFrame = 1_000

// namedLimits writes the frames of the limits. A cluster without any has none, so that the
// form of its snapshots is that of builds without limits.
func (f *frameWriter) namedLimits(s *State) {
	for part := range slices.Chunk(s.namedLimits.list, limitsPerFrame) {
		list(&f.c, &part, func(l **NamedLimit) { (*l).fields(&f.c) })
		f.frame(frameNamedLimits)
	}
}

// namedLimits reads one of these frames.
func (f *frameReader) namedLimits(d *decoder) {
	c := coder{d: d}
	for range d.count() {
		l := new(NamedLimit)
		if l.fields(&c); d.err != nil {
			return
		}
		f.s.namedLimits.list = append(f.s.namedLimits.list, l)
	}
}

// check checks the limits.
func (t *namedLimits) check() error {
	if len(t.list) > maxNamedLimits {
		return errors.New("too many limits")
	}
	for i, l := range t.list {
		switch {
		case l.malformed():
			return fmt.Errorf("limit %q is malformed", l.Name)
		case i > 0 && t.list[i-1].Name >= l.Name:
			return fmt.Errorf("limit %q follows limit %q", l.Name, t.list[i-1].Name)
		}
	}
	return nil
}
