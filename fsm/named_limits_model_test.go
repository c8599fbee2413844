package fsm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// modelLimits are the named limits of the reference model.
type modelLimits map[string]*modelLimit

type modelLimit struct {
	version                      uint32
	running, rate, period, burst uint32
	by                           string
	created, changed             int64
}

// usedBy returns the names of the limits that a job uses.
func usedBy(h *dtaskv1.JobHeader) (names []string) {
	for _, p := range h.GetPolicies() {
		for _, use := range p.GetUses() {
			if at := strings.Index(use, "/"); at >= 0 {
				use = use[:at] + "/*"
			}
			names = append(names, use)
		}
	}
	return names
}

func (m modelLimits) has(h *dtaskv1.JobHeader) bool {
	return !slices.ContainsFunc(usedBy(h), func(name string) bool { return m[name] == nil })
}

func (w *model) limit(op Op) (r string, ok bool) {
	switch op := op.(type) {
	case *SetLimit:
		return w.setLimit(op), true
	case *DeleteLimit:
		return w.deleteLimit(op), true
	}
	return "", false
}

func (w *model) setLimit(op *SetLimit) string {
	old := w.limits[op.Name]
	rated := op.Rate > 0
	switch {
	case badModelName(strings.TrimSuffix(op.Name, "/*")), op.AtMS < 1, op.Running == 0 && !rated,
		rated && (op.PeriodMS == 0 || op.Burst == 0), !rated && op.PeriodMS+op.Burst > 0, op.PeriodMS > 86_400_000:
		return "malformed"
	case old != nil && old.running == op.Running && old.rate == op.Rate && old.period == op.PeriodMS && old.burst == op.Burst:
		return "accepted"
	case op.IfVersion != 0 && (old == nil || old.version != op.IfVersion):
		return "version mismatch"
	}
	l := &modelLimit{version: 1, running: op.Running, rate: op.Rate, period: op.PeriodMS, burst: op.Burst, by: op.By, created: op.AtMS, changed: op.AtMS}
	if old != nil {
		l.version, l.created = old.version+1, old.created
	}
	w.limits[op.Name] = l
	return "accepted"
}

func (w *model) deleteLimit(op *DeleteLimit) string {
	l := w.limits[op.Name]
	switch {
	case l == nil:
		return "limit not found"
	case op.IfVersion != 0 && op.IfVersion != l.version:
		return "version mismatch"
	}
	for _, j := range w.jobs {
		if j.state != "uploading" && !j.hasEnded() && slices.Contains(usedBy(j.header), op.Name) {
			return "wrong state"
		}
	}
	for _, x := range w.schedules.list {
		if slices.Contains(usedBy(x.form.header), op.Name) {
			return "wrong state"
		}
	}
	delete(w.limits, op.Name)
	return "accepted"
}

// compare returns the differences between the limits of a state and of the reference model.
func (m modelLimits) compare(s *State) string {
	var got, want []string
	for l := range s.NamedLimits() {
		got = append(got, fmt.Sprint(l.Name, l.Version, l.Running, l.Rate, l.PeriodMS, l.Burst, l.By, l.CreatedMS, l.ChangedMS))
	}
	for name, l := range m {
		want = append(want, fmt.Sprint(name, l.version, l.running, l.rate, l.period, l.burst, l.by, l.created, l.changed))
	}
	slices.Sort(want)
	slices.Sort(got)
	return cmp.Diff(want, got)
}
