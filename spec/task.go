package spec

import (
	"fmt"

	"go.yaml.in/yaml/v4"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// taskBuilder collects the fields of a task.
type taskBuilder struct {
	id           string
	at           mark // position of the ID
	policy       uint32
	body         *dtaskv1.TaskBody
	dependencies []dependency
	field        string // name under which the dependencies are written
	cleanup      bool   // finally is set
	array        *dtaskv1.ArraySpec
}

// taskParts collects the fields of a task while they are read.
type taskParts struct {
	*taskBuilder
	policy policy
	runs   []entry // those of command, run and type that are set
	inputs []entry // those of input and inputs that are set
	lists  []entry // those of dependencies, depends_on and needs that are set
	reuse  entry   // the field, if it is set
	meant  bool    // command, run or type is misspelled
	array  *arrayParts
	json   bool // the payload is JSON
}

var taskFields = fields[*taskParts]{
	"id": func(*reader, *taskParts, entry) {}, // read first, since faults of the other fields name it
	"command": func(r *reader, t *taskParts, e entry) {
		t.runs = append(t.runs, e)
		if isText(e.value) {
			r.fault(e.value, "must be a list, not text", "write the program and each argument as an item, or use run for shell text")
			return
		}
		if v, ok := r.texts(e.value, "command: [echo, hello]", textProblem); ok && r.holds(e.value, commandProblem(v)) {
			t.body.Command = v
		}
	},
	"run": func(r *reader, t *taskParts, e entry) {
		t.runs = append(t.runs, e)
		if e.value.Kind == yaml.SequenceNode {
			r.fault(e.value, "must be text, not a list", "use command for an argument list")
			return
		}
		t.body.Run, _ = r.checked(e.value, runProblem)
	},
	"type": func(r *reader, t *taskParts, e entry) {
		t.runs = append(t.runs, e)
		t.policy.kind, _ = r.checked(e.value, nameProblem)
	},
	"array":        readArray,
	"dependencies": readNeeds,
	"depends_on":   readNeeds,
	"needs":        readNeeds,
	"input": func(r *reader, t *taskParts, e entry) {
		t.inputs = append(t.inputs, e)
		if e.value.Kind == yaml.SequenceNode {
			r.fault(e.value, "must be one path, not a list", "use inputs for a list")
			return
		}
		if v, ok := r.checked(e.value, pathProblem); ok {
			t.body.Inputs = []string{v}
		}
	},
	"inputs": func(r *reader, t *taskParts, e entry) {
		t.inputs = append(t.inputs, e)
		if isText(e.value) {
			r.fault(e.value, "must be a list, not text", "use input for one path")
			return
		}
		t.body.Inputs, _ = r.texts(e.value, "inputs: [/data/a.txt, /data/b.txt]", pathProblem)
	},
	"finally": func(r *reader, t *taskParts, e entry) {
		t.cleanup, _ = r.truth(e.value)
		t.policy.finally = t.cleanup
		t.policy.own = t.policy.own || t.cleanup
	},
	"reuse": func(r *reader, t *taskParts, e entry) {
		t.reuse = e
		u := &reuseParts{lasts: defaultReuse.Milliseconds()}
		es := r.entries(e.value, "reuse: {key: v3-17, for: 24h}")
		reuseFields.read(r, u, es, func(x entry) { r.unknown(x, reuseFields.names, "") })
		if es != nil && !has(es, "key") {
			r.fault(e.value, "key is missing", "write key: with what the result depends on")
		}
		t.body.ReuseKey, t.policy.reuse, t.policy.own = u.key, u.lasts, true
	},
	"output": func(r *reader, t *taskParts, e entry) {
		t.body.Output, _ = r.checked(e.value, fileProblem)
	},
	"stdin": func(r *reader, t *taskParts, e entry) {
		t.body.Stdin, _ = r.checked(e.value, fileProblem)
	},
	"payload": func(r *reader, t *taskParts, e entry) {
		v, ok := r.payload(e.value)
		if ok && r.holds(e.value, payloadProblem(len(v), r.opt.maxPayload())) {
			t.body.Payload = v
		}
		t.json = !isText(e.value)
	},
}

// readTask reads one task.
func (r *reader) readTask(j *jobBuilder, d *taskBuilder, n *yaml.Node) {
	es := r.entries(n, "{id: hello, run: echo hello}")
	if es == nil && n.Kind != yaml.MappingNode {
		return
	}
	d.body = &dtaskv1.TaskBody{}
	r.readID(d, n, es)
	t := &taskParts{taskBuilder: d, policy: j.defaults}
	taskFields.read(r, t, es, func(e entry) {
		read, known := policyFields[e.key]
		if !known {
			switch r.unknownInTask(j, e) {
			case "command", "run", "type":
				t.meant = true
			}
			return
		}
		t.policy.own = true
		r.enter(e.key)
		read(r, &t.policy, e)
		r.leave()
	})
	r.onlyCommands(t, es)
	r.needsOutput(t, es)
	if t.body.GetCommand() != nil || t.body.GetRun() != "" {
		t.body.Cwd = t.policy.cwd
	}
	r.onlyOne(t.runs, "leave exactly one of command, run and type")
	r.onlyOne(t.inputs, "input is for one path, inputs for a list; leave one of them")
	r.onlyOne(t.lists, "they mean the same; leave one of them")
	if len(t.runs) == 0 && !t.meant {
		r.fault(n, "has nothing to run", "write exactly one of command, run and type")
	}
	if t.policy.reuse > 0 {
		r.enter("reuse")
		r.holds(t.reuse.value, reuseProblem(t.policy.execution, t.policy.finally))
		r.leave()
	}
	if t.policy.preemptible {
		r.preemptible(&t.policy, n, es)
	}
	if t.taskBuilder.array != nil {
		t.taskBuilder.array.JsonPayload = t.json
	}
	r.template(t, n)
	r.addOutput(j, t, n)
	r.place(j, d, n, &t.policy)
}

// preemptible checks the policy of a task that gives its place to urgent ones. If the
// task has that from the defaults, a fault is at the field that excludes it.
func (r *reader) preemptible(p *policy, n *yaml.Node, es []entry) {
	q := preemptibleProblem(p.execution, p.finally)
	if !q.bad() {
		return
	}
	excludes := "finally"
	if p.execution == dtaskv1.Execution_EXECUTION_AT_MOST_ONCE {
		excludes = "execution"
	}
	at := n // both may be from the defaults
	for _, e := range es {
		if e.key == "preemptible" || e.key == excludes && at == n {
			at = e.value
		}
	}
	r.enter("preemptible")
	r.holds(at, q)
	r.leave()
}

// template checks the expressions of a task and reports faults at their
// fields.
func (r *reader) template(t *taskParts, n *yaml.Node) {
	if t.array != nil && !t.array.fine {
		return
	}
	p := &dtaskv1.TaskPolicy{ReuseMs: t.policy.reuse, Env: t.policy.env}
	field, bad := r.scheduledTask(t.body, p)
	if !bad.bad() {
		field, bad = templateProblem(t.taskBuilder.array, t.body, t.body.GetPayload(), p)
	}
	if !bad.bad() && t.taskBuilder.array == nil && !t.body.GetScheduled() {
		field, bad = literal(t.body, &t.policy)
	}
	if !bad.bad() {
		return
	}
	for _, e := range r.entriesOf(n) {
		if e.key == field || e.key == "input" && field == "inputs" || e.key == "reuse" && field == "reuse.key" {
			n = e.value
			break
		}
	}
	r.enter(field)
	r.holds(n, bad)
	r.leave()
}

// entriesOf returns the fields of a mapping whose faults have been reported.
func (r *reader) entriesOf(n *yaml.Node) []entry {
	quiet := &reader{}
	if n = deref(n); n.Kind != yaml.MappingNode {
		return nil
	}
	return quiet.gather(nil, n, nil)
}

// reuseParts collects the fields of reuse.
type reuseParts struct {
	key   string
	lasts int64 // ms
}

var reuseFields = fields[*reuseParts]{
	"key": func(r *reader, u *reuseParts, e entry) { u.key, _ = r.checked(e.value, reuseKeyProblem) },
	"for": func(r *reader, u *reuseParts, e entry) {
		if v, ok := r.duration(e.value, false); ok && r.holds(e.value, reuseDurationProblem(v)) {
			u.lasts = v
		}
	},
}

// place adds the policy of a task to the table. After the first policy that
// exceeds the limit, tasks are only checked for their own faults, and a large
// environment in the defaults is not copied into each of them.
func (r *reader) place(j *jobBuilder, d *taskBuilder, n *yaml.Node, p *policy) {
	if j.policies.full() {
		return
	}
	d.policy = j.policies.index(p, r.opt.Defaults, !r.opt.Unfilled)
	if j.policies.full() {
		r.fault(n, fmt.Sprintf("the %s different policies up to this task exceed %s", count(len(j.policies.list)), bytesText(MaxHeaderBytes)),
			"put what differs from task to task into payload, command or input; equal policies are kept once")
		j.defaults = builtIn()
	}
}

// readID reads the ID first, so that all other faults can name the task. Other
// tasks may depend on an ID that breaks a rule.
func (r *reader) readID(d *taskBuilder, n *yaml.Node, es []entry) {
	for _, e := range es {
		if e.key != "id" {
			continue
		}
		d.at = mark{max(e.value.Line, 1), max(e.value.Column, 1)}
		r.enter("id")
		id, ok := r.text(e.value)
		d.id = id
		fine := ok && r.holds(e.value, idProblem(id))
		r.leave()
		if fine {
			r.task, r.taskDepth = id, len(r.path)
		}
		return
	}
	r.fault(n, "id is missing", "write id: with 1–128 characters, unique in the job")
}

func (r *reader) unknownInTask(j *jobBuilder, e entry) (meant string) {
	elsewhere := ""
	if _, known := j.fields[e.key]; known {
		elsewhere = "it belongs to the job, not to a task"
	}
	names := func() []string { return append(taskFields.names(), policyFields.names()...) }
	if e.key == "name" {
		elsewhere = "a task is named by id"
	}
	return r.unknown(e, names, elsewhere)
}

// onlyOne reports all but the first of mutually exclusive fields.
func (r *reader) onlyOne(es []entry, do string) {
	for _, e := range es[min(1, len(es)):] {
		r.fault(e.at, fmt.Sprintf("both %s and %s are set", es[0].key, e.key), do)
	}
}
