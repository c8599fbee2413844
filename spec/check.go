package spec

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Check checks a decoded job against all rules and limits; nil means that it
// may be stored. Faults have no file and no position. Payloads may have up to
// 128 KiB; [CheckOptions] has a lower limit.
func Check(s *dtaskv1.JobSpec) Faults { return check(s, CheckOptions{MaxPayload: MaxPayload}, false) }

func check(s *dtaskv1.JobSpec, opt CheckOptions, unfilled bool) Faults {
	c := NewChecker(s.GetHeader(), opt)
	c.unfilled = unfilled
	c.begin()
	_ = c.Add(s.GetTasks()) // Seal returns these faults too
	return c.Seal()
}

// CheckOptions are the server's limits.
type CheckOptions struct {
	// MaxPayload bounds the payload of a task, in bytes. Default and maximum: 128
	// KiB.
	MaxPayload int
	// Total is the announced number of tasks, 1 to 1,000,000; 0 = unknown.
	Total uint32
	// Readable refuses inputs, outputs and standard inputs that no worker can read or
	// write. [Parse] and [Check] accept them, because other versions of workers may.
	Readable bool
	// Scheduled accepts tasks with expressions of the run of a schedule. Without it, the
	// header must have the run.
	Scheduled bool
}

// Checker checks a job that arrives in parts: the header first, then tasks as
// they are added, then the whole job when it is sealed. It keeps only the IDs
// of tasks. It is not safe for concurrent use.
type Checker struct {
	collector
	header       *dtaskv1.JobHeader
	headerBytes  int // 0: the header was not checked or has faults
	opt          CheckOptions
	ids          idSet
	outputs      outputSet
	begun        bool
	unfilled     bool // timeout and retry may be missing
	tasks        int
	ordinary     int // tasks before the first cleanup task
	dependencies int
	bytes        int
	open         *arrayCheck // array of which further parts must follow
	usesRun      bool
}

// NewChecker returns a checker for a job with this header, which must not
// change while the checker is used.
func NewChecker(h *dtaskv1.JobHeader, opt CheckOptions) *Checker {
	if opt.MaxPayload <= 0 || opt.MaxPayload > MaxPayload {
		opt.MaxPayload = MaxPayload
	}
	c := &Checker{header: h, opt: opt}
	c.ids.expect(int(opt.Total))
	return c
}

// Next starts the check of another job with the same header. A header without
// faults is not checked again. total is CheckOptions.Total of the new job.
func (c *Checker) Next(total uint32) {
	opt := c.opt
	opt.Total = total
	c.ids.expect(int(total))
	*c = Checker{header: c.header, headerBytes: c.headerBytes, unfilled: c.unfilled, opt: opt, ids: c.ids}
}

// Expect reserves memory for tasks that are added next.
func (c *Checker) Expect(tasks int) { c.ids.grow(tasks) }

// Add checks the next tasks of the job and returns all faults so far. The
// caller may stop after the first fault.
func (c *Checker) Add(tasks []*dtaskv1.TaskSpec) Faults {
	c.begin()
	for _, t := range tasks {
		c.AddTask(t)
	}
	c.atMost("job.tasks", c.tasks, MaxTasks, "tasks")
	c.atMost("job.tasks", c.dependencies, MaxDependencies, "dependencies")
	c.atMost("job", c.bytes, MaxJobBytes, "bytes")
	return c.faults()
}

// AddTask checks the next task. Add and Seal return the faults.
func (c *Checker) AddTask(t *dtaskv1.TaskSpec) {
	c.begin()
	checked := checkedSpec(t)
	c.check(&checked)
}

// AddPayloadTask is AddTask for a task whose body has only a payload.
func (c *Checker) AddPayloadTask(t PayloadTask) {
	c.begin()
	checked := t.checked()
	c.check(&checked)
}

// UsesRun reports whether a task has expressions of the run of a schedule.
func (c *Checker) UsesRun() bool { return c.usesRun }

// Faulty reports whether a fault was found.
func (c *Checker) Faulty() bool { return c.total > 0 }

// check checks the next task.
func (c *Checker) check(t *checkedTask) {
	if c.total > maxFaults { // refused anyway
		c.tasks++
		return
	}
	added := 1
	if t.array != nil || c.open != nil {
		added = c.array(t)
	}
	c.bytes += t.size
	c.task(t)
	if t.array.GetPart() > 0 {
		return
	}
	c.unique(t.id)
	c.cleanupOrder(t, added)
	c.tasks += added
	c.dependencies += len(t.dependencies)
}

// Seal checks the rules about the whole job and returns all faults; nil means
// that the job may be stored.
func (c *Checker) Seal() Faults {
	c.begin()
	switch {
	case c.tasks == 0:
		c.refuse("job.tasks", problem{"is empty", "list at least one task"})
	case c.ordinary == 0:
		c.refuse("job.tasks", problem{"has only cleanup tasks", "send at least one task without finally"})
	case c.open != nil:
		c.refuse("job.tasks", problem{fmt.Sprintf("part %d of the array %s is missing", c.open.part, quote(c.open.id)), "send all items"})
	case c.opt.Total != 0 && int(c.opt.Total) != c.tasks:
		c.refuse("job.tasks", problem{fmt.Sprintf("has %s tasks, but %s were announced", count(c.tasks), count(int(c.opt.Total))), "send as many as announced"})
	}
	return c.faults()
}

// begin checks the header once.
func (c *Checker) begin() {
	if c.begun {
		return
	}
	c.begun = true
	c.atMost("job.tasks", int(c.opt.Total), MaxTasks, "tasks")
	if c.bytes = c.headerBytes; c.bytes > 0 {
		return
	}
	c.bytes = proto.Size(c.header)
	c.checkHeader(c.header)
	if c.total == 0 {
		c.headerBytes = c.bytes
	}
}

func (c *Checker) refuse(where string, p problem) { c.refuseIn("", where, p) }

// refuseIn adds the fault of a part of something. The location is put together
// only if there is a fault.
func (c *Checker) refuseIn(whole, part string, p problem) {
	if !p.bad() {
		return
	}
	c.add(0, 0, whole+part, p.what, p.do)
}

// atMost adds one fault if n exceeds its bound.
func (c *Checker) atMost(where string, n, bound int, of string) {
	if n <= bound {
		return
	}
	p := problem{fmt.Sprintf("exceeds %s %s", count(bound), of), "split the job"}
	if !slices.ContainsFunc(c.kept, func(f Fault) bool { return f.Where == where && f.What == p.what }) {
		c.refuse(where, p)
	}
}

func (c *Checker) unique(id string) {
	if id == "" {
		return // reported elsewhere
	}
	if first, known := c.ids.add(id, uint32(min(c.tasks, MaxTasks))); known { //nolint:gosec // bounded here
		c.refuse(taskWhere(id, "id"), problem{fmt.Sprintf("duplicate id of tasks %d and %d", first, c.tasks), "give each task a unique id"})
	}
}

// cleanupOrder checks that all cleanup tasks follow all ordinary tasks.
func (c *Checker) cleanupOrder(t *checkedTask, added int) {
	policies := c.header.GetPolicies()
	at := taskPlace{c: c, id: t.id, index: c.tasks}
	switch {
	case int64(t.policy) >= int64(len(policies)):
		c.ordinary += added // reported elsewhere
	case !policies[t.policy].GetFinally() && c.ordinary < c.tasks:
		at.refuse("", problem{"must precede all cleanup tasks", "send cleanup tasks last"})
	case !policies[t.policy].GetFinally():
		c.ordinary += added
	case slices.Contains(t.conditions, dtaskv1.Condition_CONDITION_TOLERATED):
		at.refuse("conditions", problem{"must not be tolerated: max_failures is about ordinary tasks", "send ended, failed or completed"})
	case slices.ContainsFunc(t.dependencies, func(d uint32) bool { return int64(d) < int64(c.ordinary) }):
		at.refuse("dependencies", problem{"must not contain ordinary tasks", "leave them out; cleanup tasks run after all ordinary tasks"})
	}
}

func (c *Checker) checkHeader(h *dtaskv1.JobHeader) {
	c.checkJobFields(h)
	if n := proto.Size(h); n > MaxHeaderBytes {
		c.refuse("job", problem{
			fmt.Sprintf("has a header of %s with %s different policies", bytesText(n), count(len(h.GetPolicies()))),
			fmt.Sprintf("at most %s; put what differs from task to task into payload, command or input", bytesText(MaxHeaderBytes)),
		})
		return
	}
	if len(h.GetPolicies()) == 0 {
		c.refuse("job.policies", problem{"is empty", "send at least one"})
	}
	for i, p := range h.GetPolicies() {
		c.policy(fmt.Sprintf("job.policies[%d].", i), p)
	}
}

func (c *Checker) policy(at string, p *dtaskv1.TaskPolicy) {
	if p.GetType() != "" {
		c.refuseIn(at, "type", nameProblem(p.GetType()))
	}
	if p.GetPriority() != 0 {
		c.refuseIn(at, "priority", enumProblem(p.GetPriority(), priorities))
	}
	c.env(at+"env", p.GetEnv(), c.header.GetEnv())
	if len(p.GetShell()) > 0 {
		c.refuseIn(at, "shell", shellProblem(p.GetShell()))
	}
	c.refuseIn(at, "umask", umaskProblem(p.GetUmask()))
	if !c.unfilled || p.GetTimeoutMs() != 0 {
		c.refuseIn(at, "timeout", durationProblem(p.GetTimeoutMs(), 1))
	}
	c.refuseIn(at, "queue_timeout", queueTimeoutProblem(p))
	c.refuseIn(at, "start_timeout", durationProblem(p.GetStartTimeoutMs(), 0))
	c.refuseIn(at, "expect", durationProblem(p.GetExpectMs(), 0))
	c.refuseIn(at, "heartbeat_timeout", durationProblem(p.GetHeartbeatTimeoutMs(), 0))
	c.refuseIn(at, "kill_grace", durationProblem(p.GetKillGraceMs(), 0))
	if ms := p.GetReuseMs(); ms != 0 {
		c.refuseIn(at, "reuse.for", reuseDurationProblem(ms))
		c.refuseIn(at, "reuse", reuseProblem(p.GetExecution(), p.GetFinally()))
	}
	if p.GetPreemptible() {
		c.refuseIn(at, "preemptible", preemptibleProblem(p.GetExecution(), p.GetFinally()))
	}
	c.refuseIn(at, "execution", enumProblem(p.GetExecution(), executions))
	c.resources(at, p)
	c.checkPlacement(at, p)
	if len(p.GetUses()) > 0 {
		c.uses(at, p.GetUses())
	}
	if len(p.GetSecrets()) > 0 {
		c.secrets(at, p.GetSecrets())
	}
	if p.GetRetry() != nil || !c.unfilled {
		c.retry(at+"retry.", p.GetRetry())
	}
}

func (c *Checker) retry(at string, t *dtaskv1.RetryPolicy) {
	if t.GetMax() > MaxRetries {
		c.refuseIn(at, "max", problem{fmt.Sprintf("%d is out of range", t.GetMax()), "send 0 to 1,000,000"})
	}
	least := int64(0)
	if t.GetMax() > 0 {
		least = 1
	}
	c.refuseIn(at, "initial", durationProblem(t.GetInitialMs(), least))
	c.refuseIn(at, "max_delay", durationProblem(t.GetMaxDelayMs(), max(least, min(t.GetInitialMs(), MaxDuration.Milliseconds()))))
	if m := t.GetMultiplierPermille(); (m != 0 || t.GetMax() > 0) && (m < 1000 || m > maxMultiplier) {
		c.refuseIn(at, "multiplier", problem{fmt.Sprintf("%d thousandths are out of range", m), "send 1,000 to 100,000"})
	}
	c.classes(at, "on", t.GetOn())
	c.classes(at, "except", t.GetExcept())
}

func (c *Checker) classes(at, name string, list []string) {
	c.refuseIn(at, name, classCountProblem(len(list)))
	for _, class := range list {
		c.refuseIn(at, name, classProblem(class))
	}
}

func (c *Checker) env(at string, env, job map[string]string) {
	for _, name := range namesOf(env) {
		c.refuse(at, envNameProblem(name))
		c.refuse(at+"."+name, textProblem(env[name]))
	}
	c.refuse(at, envSizeProblem(job, env))
}

func (c *Checker) labels(at string, labels map[string]string) {
	c.refuse(at, labelsProblem(len(labels)))
	for _, name := range namesOf(labels) {
		c.refuse(at, labelNameProblem(name))
		c.refuseIn(at, "."+name, labelValueProblem(labels[name]))
	}
}

// namesOf returns the sorted keys of a map, which mostly is empty.
func namesOf[V any](m map[string]V) []string {
	if len(m) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(m))
}

// durationProblem checks a duration of a decoded job, in milliseconds.
func durationProblem(ms, least int64) problem {
	if ms >= least && ms <= MaxDuration.Milliseconds() {
		return problem{}
	}
	return problem{fmt.Sprintf("%d ms is out of range", ms), fmt.Sprintf("send %d to %d ms", least, MaxDuration.Milliseconds())}
}

// enumProblem checks an enum of a decoded job.
func enumProblem[T comparable](v T, words []keyword[T]) problem {
	if slices.ContainsFunc(words, func(w keyword[T]) bool { return w.is == v }) {
		return problem{}
	}
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = w.text
	}
	return problem{fmt.Sprintf("%v is not known", v), "send " + oneOf(texts)}
}
