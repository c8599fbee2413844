package spec

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/dtask/dtask/internal/calendar"
	"github.com/dtask/dtask/internal/zoneinfo"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A Schedule is a job file with a schedule: a job, and when it runs.
type Schedule struct {
	Job      *dtaskv1.JobSpec
	Calendar *calendar.Schedule
	// Recurrence is what the calendar was made of.
	Recurrence Recurrence
	Overlap    Overlap
	Missed     Missed
	// MissedWithin is how old a missed tick may be; 0 with [MissedSkip].
	MissedWithin time.Duration
}

// An Overlap is what happens to a run that is due while the previous one runs.
type Overlap int

// The policies for overlaps.
const (
	OverlapSkip    Overlap = iota + 1 // it does not run; the default
	OverlapWait                       // it waits; at most one does
	OverlapWaitAll                    // it waits
	OverlapReplace                    // the previous run is cancelled
	OverlapAllow                      // both run
)

var overlaps = []keyword[Overlap]{
	{"skip", OverlapSkip},
	{"wait", OverlapWait},
	{"wait-all", OverlapWaitAll},
	{"replace", OverlapReplace},
	{"allow", OverlapAllow},
}

// A Missed is which of the missed ticks run later.
type Missed int

// The policies for missed ticks.
const (
	MissedOne  Missed = iota + 1 // the newest; the default
	MissedAll                    // all, the oldest first
	MissedSkip                   // none
)

var misses = []keyword[Missed]{{"one", MissedOne}, {"all", MissedAll}, {"skip", MissedSkip}}

var gaps = []keyword[calendar.Gap]{{"run-after", calendar.RunAfter}, {"skip", calendar.SkipGap}}

var repeats = []keyword[calendar.Repeat]{{"once", calendar.Once}, {"twice", calendar.Twice}}

// defaultMissedWithin is how old a missed tick may be if the file does not say.
const defaultMissedWithin = 24 * time.Hour

const (
	scheduleForm = `schedule: {cron: "30 2 * * *", timezone: Europe/Berlin}`
	cronForm     = `cron: "30 2 * * *"`
	timeForm     = `[2026-12-25, 2026-12-26]`
)

// ParseSchedule parses a job file that has a schedule. The name of the job is that of the
// schedule, and decides its jitter. The error is [Faults]. ParseSchedule is safe for
// concurrent use.
func ParseSchedule(path string, text []byte, opt Options) (*Schedule, error) {
	r := &reader{collector: collector{file: path}, opt: opt, scheduled: true}
	job, err := r.parse(r.load(text))
	if err != nil {
		return nil, err
	}
	r.schedule.Job = job
	return r.schedule, nil
}

// scheduleBuilder collects the fields of a schedule.
type scheduleBuilder struct {
	config calendar.Config
	out    Schedule
	within *yaml.Node
	nodes  map[string]*yaml.Node // values by field
}

var scheduleFields = fields[*scheduleBuilder]{
	"cron": readCron,
	"every": func(r *reader, b *scheduleBuilder, e entry) {
		ms, ok := r.duration(e.value, true)
		if ok && ms == 0 {
			r.fault(e.value, fmt.Sprintf("%s must be longer than 0", quote(e.value.Value)), "write a duration such as 15m")
		}
		b.config.Every = time.Duration(ms) * time.Millisecond
	},
	"at": func(r *reader, b *scheduleBuilder, e entry) {
		b.config.At = r.points(e.value, "[2026-12-25T08:00]")
	},
	"timezone": func(r *reader, b *scheduleBuilder, e entry) {
		name, ok := r.text(e.value)
		if !ok {
			return
		}
		zone, err := zoneinfo.Load(name)
		if unknown, bad := errors.AsType[*zoneinfo.UnknownError](err); bad {
			r.fault(e.value, fmt.Sprintf("unknown time zone %s", quote(name)), unknown.Advice())
		}
		b.config.Zone = zone
	},
	"jitter": func(r *reader, b *scheduleBuilder, e entry) {
		ms, _ := r.duration(e.value, true)
		b.config.Jitter = time.Duration(ms) * time.Millisecond
	},
	"overlap": func(r *reader, b *scheduleBuilder, e entry) {
		if v, ok := readKeyword(r, e.value, overlaps); ok {
			b.out.Overlap = v
		}
	},
	"missed": func(r *reader, b *scheduleBuilder, e entry) {
		missedFields.read(r, b, r.entries(e.value, "missed: {run: one, within: 24h}"), func(u entry) { r.unknown(u, missedFields.names, "") })
	},
	"dst": func(r *reader, b *scheduleBuilder, e entry) {
		dstFields.read(r, b, r.entries(e.value, "dst: {gap: run-after, repeat: once}"), func(u entry) { r.unknown(u, dstFields.names, "") })
	},
	"from":   func(r *reader, b *scheduleBuilder, e entry) { b.config.From = r.point(e.value) },
	"until":  func(r *reader, b *scheduleBuilder, e entry) { b.config.Until = r.point(e.value) },
	"except": func(r *reader, b *scheduleBuilder, e entry) { b.config.Except = r.points(e.value, timeForm) },
}

var missedFields = fields[*scheduleBuilder]{
	"run": func(r *reader, b *scheduleBuilder, e entry) {
		if v, ok := readKeyword(r, e.value, misses); ok {
			b.out.Missed = v
		}
	},
	"within": func(r *reader, b *scheduleBuilder, e entry) {
		b.within = e.value
		ms, _ := r.duration(e.value, false)
		b.out.MissedWithin = time.Duration(ms) * time.Millisecond
	},
}

var dstFields = fields[*scheduleBuilder]{
	"gap":    func(r *reader, b *scheduleBuilder, e entry) { b.config.Gap, _ = readKeyword(r, e.value, gaps) },
	"repeat": func(r *reader, b *scheduleBuilder, e entry) { b.config.Repeat, _ = readKeyword(r, e.value, repeats) },
}

// readSchedule reads the mapping schedule. The job's name may be empty if it has faults.
func (r *reader) readSchedule(n *yaml.Node, name string) *Schedule {
	before := r.total
	es := r.entries(n, scheduleForm)
	if es == nil && r.total > before {
		return nil
	}
	b := &scheduleBuilder{
		config: calendar.Config{Name: name, Zone: time.UTC},
		out:    Schedule{Overlap: OverlapSkip, Missed: MissedOne, MissedWithin: defaultMissedWithin},
		nodes:  map[string]*yaml.Node{},
	}
	for _, e := range es {
		b.nodes[e.key] = e.value
	}
	meant := map[string]bool{}
	scheduleFields.read(r, b, es, func(e entry) {
		elsewhere := ""
		if _, known := jobFields[e.key]; known {
			elsewhere = "it belongs to the job, under job:"
		}
		meant[r.unknown(e, scheduleFields.names, elsewhere)] = true
	})
	r.oneKind(n, es, meant)
	if _, set := b.nodes["dst"]; set && b.nodes["every"] != nil {
		r.enter("dst")
		r.fault(b.nodes["dst"], "has no effect with every, which counts real time", "leave it out, or write cron")
		r.leave()
	}
	if b.out.Missed == MissedSkip {
		if b.within != nil {
			r.fault(b.within, "missed.within has no effect with run: skip", "leave it out")
		}
		b.out.MissedWithin = 0
	}
	if r.total > before {
		return nil
	}
	return r.calendar(n, b)
}

// shareOverlap makes the rule for overlaps of a job with a concurrency key that of its
// schedule.
func (r *reader) shareOverlap(e *entry, c *dtaskv1.JobConcurrency) {
	if r.schedule == nil || c == nil {
		return
	}
	r.schedule.Overlap = Overlap(max(c.GetOverlap(), dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_SKIP))
	for _, x := range r.entries(e.value, scheduleForm) {
		if x.key == "overlap" {
			r.enter("schedule")
			r.enter("overlap")
			r.fault(x.at, "has no place beside the concurrency of the job, which has the rule", "move it to job.concurrency.overlap")
			r.leave()
			r.leave()
		}
	}
}

// oneKind requires exactly one of cron, every and at.
func (r *reader) oneKind(n *yaml.Node, es []entry, meant map[string]bool) {
	first := ""
	for _, e := range es {
		switch {
		case e.key != "cron" && e.key != "every" && e.key != "at":
		case first != "":
			r.fault(e.at, fmt.Sprintf("%s and %s are mutually exclusive", first, e.key), "write one of cron, every and at")
		default:
			first = e.key
		}
	}
	if first == "" && !meant["cron"] && !meant["every"] && !meant["at"] {
		r.fault(n, "has none of cron, every and at", "write when it runs, such as "+cronForm)
	}
}

// calendar builds the calendar of a schedule whose fields are valid.
func (r *reader) calendar(n *yaml.Node, b *scheduleBuilder) *Schedule {
	made, err := calendar.New(b.config)
	if bad, ok := errors.AsType[*calendar.Error](err); ok {
		r.enter(bad.Field)
		at := b.nodes[bad.Field]
		if at == nil {
			at = n
		}
		if bad.Field == "at" && bad.Index < len(at.Content) {
			r.enterItem(bad.Index)
			defer r.leave()
			at = deref(at.Content[bad.Index])
		}
		r.fault(at, bad.What, bad.Do)
		r.leave()
		return nil
	}
	if now := r.opt.Now; !now.IsZero() {
		if _, ok := made.Next(now); !ok {
			do := "write a later time"
			if !b.config.Until.IsZero() {
				do = "write a later until, or leave it out"
			}
			r.fault(n, "has ended: it has no tick after "+now.UTC().Format(time.RFC3339), do)
		}
	}
	b.out.Calendar, b.out.Recurrence = made, recurrence(&b.config)
	return &b.out
}

// readCron reads one expression, or a list of them.
func readCron(r *reader, b *scheduleBuilder, e entry) {
	if e.value.Kind != yaml.SequenceNode {
		b.config.Cron = append(b.config.Cron, r.expression(e.value))
		return
	}
	if len(e.value.Content) == 0 {
		r.fault(e.value, "is empty", "write an expression, such as "+cronForm)
	}
	for i, n := range e.value.Content {
		r.enterItem(i)
		b.config.Cron = append(b.config.Cron, r.expression(deref(n)))
		r.leave()
	}
}

// expression reads a cron expression; nil if it is not valid.
func (r *reader) expression(n *yaml.Node) *calendar.Expression {
	s, ok := r.text(n)
	if !ok {
		return nil
	}
	e, err := calendar.ParseCron(s)
	if bad, wrong := errors.AsType[*calendar.Error](err); wrong {
		r.faultInside(n, bad.Offset, bad.What, bad.Do)
	}
	return e
}

// faultInside adds a fault at a character of a text, if the file has the text as it is,
// on one line.
func (r *reader) faultInside(n *yaml.Node, offset int, what, do string) {
	_, inserted := r.inserted[n]
	at := *n
	if !inserted && !strings.Contains(n.Value, "\n") {
		switch n.Style { //nolint:exhaustive // the text of others begins elsewhere
		case yaml.DoubleQuotedStyle, yaml.SingleQuotedStyle:
			at.Column += 1 + offset
		case 0:
			at.Column += offset
		}
	}
	r.fault(&at, what, do)
}

// point reads a time.
func (r *reader) point(n *yaml.Node) calendar.Point {
	s, ok := r.text(n)
	if !ok {
		return calendar.Point{}
	}
	p, err := calendar.ParsePoint(s)
	if bad, wrong := errors.AsType[*calendar.Error](err); wrong {
		r.fault(n, bad.What, bad.Do)
	}
	return p
}

// points reads a list of times.
func (r *reader) points(n *yaml.Node, example string) []calendar.Point {
	nodes, ok := r.items(n, example)
	if ok && len(nodes) == 0 {
		r.fault(n, "is empty", "list at least one time, or leave it out")
	}
	if len(nodes) > calendar.MaxTimes {
		r.fault(n, fmt.Sprintf("lists %s times", count(len(nodes))), "at most "+count(calendar.MaxTimes))
		return nil
	}
	list := make([]calendar.Point, 0, len(nodes))
	for i, item := range nodes {
		r.enterItem(i)
		list = append(list, r.point(deref(item)))
		r.leave()
	}
	return list
}
