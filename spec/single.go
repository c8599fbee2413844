package spec

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// SingleTask describes a job of one task, or of one array, without a file. Empty
// fields are left out of the job. Texts are as in a job file.
type SingleTask struct {
	Type    string   // built-in or registered handler
	Command []string // program and arguments, instead of Type
	// Payload is passed on as it is: it may be any bytes, and expressions in it are
	// not replaced.
	Payload  []byte
	Priority string // low, normal, high or urgent, or 0 to 3; empty = normal
	Name     string // of the job; empty = the type
	ID       string // of the task; empty = the type

	Array       string            // indexes of an array, such as 0-99
	Cwd         string            // of the command
	Env         map[string]string // of the command
	Labels      map[string]string // of the job
	Resources   map[string]string // amounts by name
	Uses        []string          // names of limits
	Preemptible bool              // urgent tasks may take its place while it runs
	Timeout     time.Duration     // of an attempt, in whole milliseconds; 0 = the default
	Retries     *uint32           // after the first attempt; nil = the default

	// Options are those of a job file.
	Options Options
}

// Single returns the job of one task. It applies the rules of a job file. The error is
// [Faults], whose locations are fields of SingleTask as a job file names them: name,
// command[1], env.LANG, array.range, retry.max.
func Single(t SingleTask) (*dtaskv1.JobSpec, error) {
	r := &reader{opt: t.Options, withoutFile: true}
	job, err := r.parse(t.document())
	faults, _ := err.(Faults) //nolint:errorlint // parse returns this type
	faults = t.relocate(faults)
	if p := payloadProblem(len(t.Payload), t.Options.maxPayload()); p.bad() {
		faults = append(faults, Fault{Where: "payload", What: p.what, Do: p.do})
	}
	if len(faults) > 0 {
		return nil, faults
	}
	job.GetTasks()[0].Body.Payload = t.Payload
	return job, nil
}

// relocate makes the locations of faults those of fields instead of positions in a
// file. It removes those of a name and an ID that the caller left out: they repeat a
// fault of the type.
func (t SingleTask) relocate(faults Faults) Faults {
	prefixes := []string{taskWhere(t.id(), "") + ": ", "job.tasks[0].", "job."}
	kept := faults[:0]
	for _, f := range faults {
		f.Line, f.Column = 0, 0
		for _, prefix := range prefixes {
			if rest, ok := strings.CutPrefix(f.Where, prefix); ok {
				f.Where = rest
				break
			}
		}
		if f.Where == "name" && t.Name == "" || f.Where == "id" && t.ID == "" {
			continue
		}
		kept = append(kept, f)
	}
	return kept
}

func (t SingleTask) id() string { return cmp.Or(t.ID, t.Type) }

// document returns the tree of the job file that describes the job.
func (t SingleTask) document() *yaml.Node {
	d := &documentBuilder{}
	task := d.mapping()
	if len(t.Command) > 0 {
		d.set(task, "command", d.texts(t.Command))
	} else {
		d.set(task, "type", d.text(t.Type))
	}
	d.set(task, "id", d.text(t.id()))
	if t.Array != "" {
		array := d.mapping()
		d.set(array, "range", d.text(t.Array))
		d.set(task, "array", array)
	}
	d.setText(task, "cwd", t.Cwd)
	d.setAll(task, "env", t.Env, d.text)
	d.setAll(task, "resources", t.Resources, d.amount)
	if len(t.Uses) > 0 {
		d.set(task, "uses", d.texts(t.Uses))
	}
	if t.Preemptible {
		d.set(task, "preemptible", d.node(yaml.ScalarNode, "!!bool", "true"))
	}
	if t.Timeout > 0 {
		d.set(task, "timeout", d.text(fmt.Sprintf("%dms", t.Timeout.Milliseconds())))
	}
	if t.Retries != nil {
		retry := d.mapping()
		d.set(retry, "max", d.number(strconv.FormatUint(uint64(*t.Retries), 10)))
		d.set(task, "retry", retry)
	}
	tasks := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: []*yaml.Node{task}}

	job, root := d.mapping(), d.mapping()
	d.set(job, "name", d.text(cmp.Or(t.Name, t.Type)))
	d.setText(job, "priority", t.Priority)
	d.setAll(job, "labels", t.Labels, d.text)
	d.set(job, "tasks", tasks)
	d.set(root, "job", job)
	return root
}

// A documentBuilder makes the nodes of a job file that nobody wrote. Their columns
// number them, because faults are sorted, and recognized as the same, by position.
type documentBuilder struct{ nodes int }

func (d *documentBuilder) node(kind yaml.Kind, tag, value string) *yaml.Node {
	d.nodes++
	return &yaml.Node{Kind: kind, Tag: tag, Value: value, Line: 1, Column: d.nodes}
}

func (d *documentBuilder) mapping() *yaml.Node { return d.node(yaml.MappingNode, "!!map", "") }

func (d *documentBuilder) text(s string) *yaml.Node { return d.node(yaml.ScalarNode, "!!str", s) }

func (d *documentBuilder) number(s string) *yaml.Node {
	if strings.Trim(s, "-0123456789") == "" {
		return d.node(yaml.ScalarNode, "!!int", s)
	}
	return d.node(yaml.ScalarNode, "!!float", s)
}

// amount returns a number, or a text such as 64MiB.
func (d *documentBuilder) amount(s string) *yaml.Node {
	if _, err := strconv.ParseFloat(s, 64); err != nil {
		return d.text(s)
	}
	return d.number(s)
}

func (d *documentBuilder) texts(list []string) *yaml.Node {
	n := d.node(yaml.SequenceNode, "!!seq", "")
	for _, s := range list {
		n.Content = append(n.Content, d.text(s))
	}
	return n
}

// set adds a field to a mapping.
func (d *documentBuilder) set(mapping *yaml.Node, key string, value *yaml.Node) {
	mapping.Content = append(mapping.Content, d.text(key), value)
}

// setText adds a field unless it is empty.
func (d *documentBuilder) setText(mapping *yaml.Node, key, value string) {
	if value != "" {
		d.set(mapping, key, d.text(value))
	}
}

// setAll adds a mapping unless it is empty.
func (d *documentBuilder) setAll(mapping *yaml.Node, key string, values map[string]string, value func(string) *yaml.Node) {
	if len(values) == 0 {
		return
	}
	n := d.mapping()
	for _, name := range namesOf(values) {
		d.set(n, name, value(values[name]))
	}
	d.set(mapping, key, n)
}
