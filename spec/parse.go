package spec

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Options are settings that are not in the job file.
type Options struct {
	// Owner is the default owner; at most 63 bytes.
	Owner string
	// Name replaces the name in the file; empty = that of the file.
	Name string
	// Priority replaces the priority of the job; 0 = that of the file. Tasks with a
	// priority of their own keep it.
	Priority dtaskv1.Priority
	// Labels are added to those of the file, and replace those with the same name.
	Labels map[string]string
	// Params are values of parameters that the file declares, by name.
	Params map[string]string
	// MaxPayload bounds the payload of a task, in bytes. Default 64 KiB, maximum
	// 128 KiB.
	MaxPayload int
	// Defaults are the defaults of task fields.
	Defaults TaskDefaults
	// Unfilled leaves missing timeout and retry fields unset, so that the
	// coordinator's [Fill] sets them.
	Unfilled bool
	// Now, if set, rejects schedules that have no tick after it.
	Now time.Time
	// MayHaveSchedule accepts files with a schedule, which is checked and left out.
	MayHaveSchedule bool
}

func (o Options) maxPayload() int {
	if o.MaxPayload <= 0 {
		return DefaultPayload
	}
	return min(o.MaxPayload, MaxPayload)
}

// Parse parses a job file in YAML or JSON. The path is only used in messages;
// "-" stands for standard input. The error is [Faults]; a file with a schedule is one for
// [ParseSchedule]. Parse is safe for concurrent use.
func Parse(path string, text []byte, opt Options) (*dtaskv1.JobSpec, error) {
	r := &reader{collector: collector{file: path}, opt: opt}
	return r.parse(r.load(text))
}

// parse reads a job from the tree of a file; nil if the tree could not be loaded.
func (r *reader) parse(root *yaml.Node) (*dtaskv1.JobSpec, error) {
	if root == nil || !r.survey(root) {
		return nil, r.err()
	}
	if root.Kind != yaml.MappingNode {
		r.fault(root, "the file must be a mapping, not "+kind(root)+"", "begin with job: and put name and tasks under it")
		return nil, r.err()
	}
	if !r.withoutFile && !r.params(root) {
		return nil, r.err()
	}
	job := r.top(root)
	if r.total > 0 {
		return nil, r.err()
	}
	// Limits of whole jobs are the checker's.
	for _, f := range check(job, CheckOptions{MaxPayload: r.opt.maxPayload(), Scheduled: r.hasSchedule}, r.opt.Unfilled) {
		r.add(max(root.Line, 1), max(root.Column, 1), f.Where, f.What, f.Do)
	}
	if r.total > 0 {
		return nil, r.err()
	}
	return job, nil
}

// topParts collects the top-level fields.
type topParts struct {
	job, schedule *entry
}

var topFields = fields[*topParts]{
	"version": func(r *reader, _ *topParts, e entry) {
		if v, ok := r.number(e.value, 0, 1<<31); ok && v != 1 {
			r.fault(e.value, "version "+e.value.Value+" is not known", "this program reads version 1")
		}
	},
	"job":      func(_ *reader, t *topParts, e entry) { t.job = &e },
	"schedule": func(_ *reader, t *topParts, e entry) { t.schedule = &e },
}

// top reads the top level.
func (r *reader) top(root *yaml.Node) *dtaskv1.JobSpec {
	var t topParts
	meant := ""
	topFields.read(r, &t, r.entries(root, "job: {name: …, tasks: […]}"), func(e entry) {
		elsewhere := ""
		if _, known := jobFields[e.key]; known {
			elsewhere, meant = "put it under job:", "job"
		} else if _, known := scheduleFields[e.key]; known {
			elsewhere = "put it under schedule:"
		}
		meant = cmp.Or(r.unknown(e, topFields.names, elsewhere), meant)
	})
	if t.job == nil {
		if meant != "job" {
			r.fault(root, "job is missing", "write job: with a name and tasks")
		}
		r.readWhen(root, t.schedule, "")
		return nil
	}
	r.hasSchedule = t.schedule != nil
	r.enter("job")
	job := r.job(t.job.value)
	r.leave()
	r.readWhen(root, t.schedule, job.GetHeader().GetName())
	r.shareOverlap(t.schedule, job.GetHeader().GetConcurrency())
	return job
}

// readWhen reads the schedule, which a file must have or must not have.
func (r *reader) readWhen(root *yaml.Node, schedule *entry, name string) {
	if schedule == nil {
		if r.scheduled {
			r.fault(root, "schedule is missing", "write it beside job, such as "+scheduleForm)
		}
		return
	}
	r.enter("schedule")
	defer r.leave()
	r.schedule = r.readSchedule(schedule.value, name)
	if !r.scheduled && !r.opt.MayHaveSchedule {
		r.fault(schedule.at, "a file with a schedule cannot be submitted", fmt.Sprintf("dtaskctl schedule set %s makes a schedule of it; to run the job once, leave schedule out", r.file))
	}
}

// inOrder moves the fields that others depend on to the front and tasks to the
// end.
func inOrder(es []entry) []entry {
	rank := func(e entry) int { return slices.Index([]string{"env", "defaults", "tasks"}, e.key) }
	slices.SortStableFunc(es, func(a, b entry) int { return rank(a) - rank(b) })
	return es
}
