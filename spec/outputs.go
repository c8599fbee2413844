package spec

import (
	"fmt"
	"path"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/dtask/dtask/internal/array"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const fileScheme = "file://"

// outputSet has the outputs of a job's tasks, by path. Two tasks with one output would
// overwrite each other's. Outputs with expressions are not compared: what they become
// depends on the items.
type outputSet map[string]string // path → ID of the task

// add adds the output of a task, if it has one.
func (s *outputSet) add(id, output string, a *dtaskv1.ArraySpec) problem {
	switch {
	case output == "" || a.GetPart() > 0 || a != nil && array.UsesItem(output):
		return problem{}
	case a != nil && tasksOf(a) > 1:
		return problem{fmt.Sprintf("is the same for all %s tasks of the array", count(int(tasksOf(a)))), "write ${{ index }} into it"} //nolint:gosec // at most MaxTasks
	}
	name := path.Clean(strings.TrimPrefix(strings.TrimPrefix(output, fileScheme), "localhost"))
	if first, taken := (*s)[name]; taken {
		return problem{fmt.Sprintf("%s is the output of task %s, too", quote(output), quote(first)), "give each task an output of its own"}
	}
	if *s == nil {
		*s = make(outputSet)
	}
	(*s)[name] = id
	return problem{}
}

// addOutput reports an output that another task has.
func (r *reader) addOutput(j *jobBuilder, t *taskParts, n *yaml.Node) {
	bad := j.outputs.add(t.id, t.body.GetOutput(), t.taskBuilder.array)
	if !bad.bad() {
		return
	}
	for _, e := range r.entriesOf(n) {
		if e.key == "output" {
			n = e.value
		}
	}
	r.enter("output")
	r.holds(n, bad)
	r.leave()
}
