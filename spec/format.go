package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/internal/array"
	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Format writes a job as a job file, in JSON with all defaults written out. It returns
// an error if no job file has exactly this job, such as one with a binary payload or
// with more tasks than a file can list.
func Format(job *dtaskv1.JobSpec) ([]byte, error) {
	f := formatter{job: job, ids: make(map[uint32]string, len(job.GetTasks()))}
	text, err := f.text()
	if err != nil {
		return nil, err
	}
	again, err := Parse(job.GetHeader().GetName(), text, Options{MaxPayload: MaxPayload, Owner: job.GetHeader().GetOwner()})
	if err != nil {
		return nil, fmt.Errorf("no job file has this job: %w", err)
	}
	if difference := differs(job, again); difference != "" {
		return nil, fmt.Errorf("no job file has exactly this job: %s would differ", difference)
	}
	return text, nil
}

// object is a JSON object. Its keys are written in alphabetical order.
type object = map[string]any

type formatter struct {
	job *dtaskv1.JobSpec
	ids map[uint32]string // of tasks, by index
}

func (f *formatter) text() ([]byte, error) {
	index := uint32(0)
	for _, t := range f.job.GetTasks() {
		f.ids[index] = t.GetId()
		index += uint32(min(array.Tasks(t), MaxTasks)) //nolint:gosec // bounded
	}
	tasks := make([]object, len(f.job.GetTasks()))
	for i, t := range f.job.GetTasks() {
		var err error
		if tasks[i], err = f.task(t); err != nil {
			return nil, fmt.Errorf("task %s: %w", t.GetId(), err)
		}
	}
	h := f.job.GetHeader()
	o := object{"name": h.GetName(), "tasks": tasks}
	set(o, "owner", h.GetOwner(), h.GetOwner() != "")
	set(o, "namespace", h.GetNamespace(), h.GetNamespace() != "")
	set(o, "queue", h.GetQueue(), h.GetQueue() != "")
	set(o, "priority", keywordOf(priorities, h.GetPriority()), h.GetPriority() != 0)
	set(o, "env", h.GetEnv(), len(h.GetEnv()) > 0)
	set(o, "labels", h.GetLabels(), len(h.GetLabels()) > 0)
	set(o, "deadline", milliseconds(h.GetDeadlineMs()), h.GetDeadlineMs() != 0)
	set(o, "start_at", formatInstant(h.GetStartAtMs()), h.GetStartAtMs() != 0)
	set(o, "start_after", milliseconds(h.GetStartAfterMs()), h.GetStartAfterMs() != 0)
	set(o, "expires", milliseconds(h.GetExpiresMs()), h.GetExpiresMs() != 0)
	set(o, "concurrency", formatConcurrency(h.GetConcurrency()), h.GetConcurrency() != nil)
	set(o, "on_failure", keywordOf(onFailures, h.GetOnFailure()), h.GetOnFailure() != 0)
	set(o, "webhook", h.GetWebhook(), h.GetWebhook() != "")
	set(o, "max_failures", h.GetMaxFailures(), h.GetMaxFailures() != 0)
	set(o, "params", formatParams(h.GetParams()), len(h.GetParams()) > 0)
	set(o, "needs", formatJobNeeds(h.GetNeeds()), len(h.GetNeeds()) > 0)
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(object{"job": o}); err != nil {
		return nil, fmt.Errorf("encoding the job: %w", err)
	}
	return b.Bytes(), nil
}

// formatParams declares parameters whose defaults are the values that a job was made
// with. They are inserted already: the declarations only keep them.
func formatParams(values map[string]string) []object {
	list := make([]object, 0, len(values))
	for _, name := range namesOf(values) {
		list = append(list, object{"name": name, "default": values[name]})
	}
	return list
}

func set(o object, key string, value any, isSet bool) {
	if isSet {
		o[key] = value
	}
}

func (f *formatter) task(t *dtaskv1.TaskSpec) (object, error) {
	if int(t.GetPolicy()) >= len(f.job.GetHeader().GetPolicies()) {
		return nil, errors.New("unknown policy")
	}
	o, b := object{"id": t.GetId()}, t.GetBody()
	template := t.GetArray() != nil || b.GetScheduled() // its texts have expressions
	if !template {
		b = proto.CloneOf(b)
		taskbody.EachText(b, func(_ string, text *string) { *text = escaped(*text) })
		if b != nil {
			b.Payload = []byte(escaped(string(b.GetPayload())))
		}
	}
	formatPolicy(o, f.job.GetHeader().GetPolicies()[t.GetPolicy()], b.GetReuseKey(), !template)
	set(o, "command", b.GetCommand(), len(b.GetCommand()) > 0)
	set(o, "run", b.GetRun(), b.GetRun() != "")
	set(o, "inputs", b.GetInputs(), len(b.GetInputs()) > 0)
	set(o, "output", b.GetOutput(), b.GetOutput() != "")
	set(o, "cwd", b.GetCwd(), b.GetCwd() != "")
	set(o, "stdin", b.GetStdin(), b.GetStdin() != "")
	var needs []any
	for k, dep := range t.GetDependencies() {
		if when := conditionOf(t, k); conditional(when) {
			needs = append(needs, object{"task": f.ids[dep], "when": keywordOf(conditions, when)})
		} else {
			needs = append(needs, f.ids[dep])
		}
	}
	set(o, "dependencies", needs, len(needs) > 0)
	switch payload := b.GetPayload(); {
	case !utf8.Valid(payload):
		return nil, errors.New("its payload is binary")
	case t.GetArray().GetJsonPayload():
		o["payload"] = json.RawMessage(payload)
	default:
		set(o, "payload", string(payload), len(payload) > 0)
	}
	if a := t.GetArray(); a != nil {
		o["array"] = arrayOf(a)
	}
	return o, nil
}

// conditionOf returns the condition of the k-th dependency.
func conditionOf(t *dtaskv1.TaskSpec, k int) dtaskv1.Condition {
	if len(t.GetConditions()) == 0 {
		return dtaskv1.Condition_CONDITION_COMPLETED
	}
	return max(t.GetConditions()[k], dtaskv1.Condition_CONDITION_COMPLETED)
}

func arrayOf(a *dtaskv1.ArraySpec) object {
	o := object{}
	set(o, "max_parallel", a.GetMaxParallel(), a.GetMaxParallel() != 0)
	set(o, "chunk", a.GetChunk(), a.GetChunk() != 0)
	var ranges []string
	for _, r := range a.GetRanges() {
		ranges = append(ranges, array.Format(r))
	}
	set(o, "range", strings.Join(ranges, ","), len(ranges) > 0)
	items := make([]json.RawMessage, len(a.GetItems()))
	for i, it := range a.GetItems() {
		items[i] = it
	}
	set(o, "items", items, len(items) > 0)
	return o
}

// formatPolicy adds the fields of a policy to a task.
func formatPolicy(o object, p *dtaskv1.TaskPolicy, reuseKey string, literal bool) {
	set(o, "type", p.GetType(), p.GetType() != "")
	set(o, "priority", keywordOf(priorities, p.GetPriority()), p.GetPriority() != 0)
	env := maps.Clone(p.GetEnv())
	for name, text := range env {
		if literal {
			env[name] = escaped(text)
		}
	}
	set(o, "env", env, len(env) > 0)
	set(o, "shell", p.GetShell(), len(p.GetShell()) > 0)
	set(o, "umask", fmt.Sprintf("%03o", p.GetUmask()), p.Umask != nil)
	set(o, "timeout", milliseconds(p.GetTimeoutMs()), p.GetTimeoutMs() != 0)
	set(o, "queue_timeout", queueTimeoutOf(p), p.GetQueueTimeoutMs() != 0)
	set(o, "start_timeout", milliseconds(p.GetStartTimeoutMs()), p.GetStartTimeoutMs() != 0)
	set(o, "expect", milliseconds(p.GetExpectMs()), p.GetExpectMs() != 0)
	set(o, "heartbeat_timeout", milliseconds(p.GetHeartbeatTimeoutMs()), p.GetHeartbeatTimeoutMs() != 0)
	o["kill_grace"] = milliseconds(p.GetKillGraceMs())
	set(o, "execution", keywordOf(executions, p.GetExecution()), p.GetExecution() != 0)
	formatPlacement(o, p)
	set(o, "uses", p.GetUses(), len(p.GetUses()) > 0)
	set(o, "secrets", p.GetSecrets(), len(p.GetSecrets()) > 0)
	set(o, "preemptible", true, p.GetPreemptible())
	set(o, "finally", true, p.GetFinally())
	set(o, "reuse", object{"key": reuseKey, "for": milliseconds(p.GetReuseMs())}, p.GetReuseMs() != 0)
	if r := p.GetRetry(); r != nil {
		o["retry"] = retryOf(r)
	}
	formatResources(o, p)
}

func retryOf(r *dtaskv1.RetryPolicy) object {
	o := object{"max": r.GetMax()}
	if r.GetMax() > 0 {
		o["initial"], o["max_delay"] = milliseconds(r.GetInitialMs()), milliseconds(r.GetMaxDelayMs())
		o["multiplier"], o["jitter"] = decimal(int64(r.GetMultiplierPermille())), r.GetJitter()
	}
	set(o, "on", r.GetOn(), len(r.GetOn()) > 0)
	set(o, "except", r.GetExcept(), len(r.GetExcept()) > 0)
	return o
}

// escaped writes a text that has no expressions.
func escaped(text string) string { return strings.ReplaceAll(text, "${{", "$${{") }

func milliseconds(ms int64) string { return strconv.FormatInt(ms, 10) + "ms" }

// decimal writes a number of thousandths.
func decimal(thousandths int64) json.Number {
	text := fmt.Sprintf("%d.%03d", thousandths/1000, thousandths%1000)
	return json.Number(strings.TrimSuffix(strings.TrimRight(text, "0"), "."))
}

func keywordOf[T comparable](list []keyword[T], value T) string {
	for _, k := range list {
		if k.is == value {
			return k.text
		}
	}
	return ""
}

// differs names a part in which two jobs differ; "" if they are the same. The order of
// policies and tasks is not a difference.
func differs(a, b *dtaskv1.JobSpec) string {
	x, y := namedTasks(a), namedTasks(b)
	for _, id := range slices.Sorted(maps.Keys(x)) {
		if !proto.Equal(x[id].policy, y[id].policy) || !proto.Equal(x[id].task, y[id].task) || !slices.Equal(x[id].needs, y[id].needs) {
			return "task " + id
		}
	}
	if len(x) != len(y) {
		return "the list of tasks"
	}
	h, g := proto.CloneOf(a.GetHeader()), proto.CloneOf(b.GetHeader())
	h.Policies, g.Policies = nil, nil
	if !proto.Equal(h, g) {
		return "the header"
	}
	return ""
}

// namedTask is a task whose dependencies and policy don't depend on the rest of the job.
type namedTask struct {
	task   *dtaskv1.TaskSpec
	policy *dtaskv1.TaskPolicy
	needs  []string
}

func namedTasks(job *dtaskv1.JobSpec) map[string]namedTask {
	ids, index := make(map[uint32]string), uint32(0)
	for _, t := range job.GetTasks() {
		ids[index] = t.GetId()
		index += uint32(min(array.Tasks(t), MaxTasks)) //nolint:gosec // bounded
	}
	tasks := make(map[string]namedTask, len(job.GetTasks()))
	for _, t := range job.GetTasks() {
		n := namedTask{task: proto.CloneOf(t)}
		if int(t.GetPolicy()) < len(job.GetHeader().GetPolicies()) {
			n.policy = proto.CloneOf(job.GetHeader().GetPolicies()[t.GetPolicy()])
			if r := n.policy.GetRetry(); r.GetMax() == 0 { // then the delays have no meaning
				n.policy.Retry = &dtaskv1.RetryPolicy{On: r.GetOn(), Except: r.GetExcept()}
			}
		}
		for k, dep := range t.GetDependencies() {
			n.needs = append(n.needs, ids[dep]+" "+keywordOf(conditions, conditionOf(t, k)))
		}
		slices.Sort(n.needs)
		n.task.Policy, n.task.Dependencies, n.task.Conditions = 0, nil, nil
		tasks[t.GetId()] = n
	}
	return tasks
}
