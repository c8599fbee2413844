package cli

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// maxJobTasks is the largest job that --batch and bench make.
const maxJobTasks = 1_000_000

// The type and payload of a batch without a type: a few milliseconds of work.
const (
	batchType    = "prime"
	batchPayload = "999999937"
)

// An inlineJob is a job that flags describe: of a handler (submit) or a command (run).
type inlineJob struct {
	taskType, payload, priority, name string
	batch                             int // tasks; 0 = one
	randomPriority                    bool

	command                []string // instead of taskType
	array, cwd             string
	env, labels, resources map[string]string
	uses                   []string
	preemptible            bool
	timeout                time.Duration // of an attempt; 0 = the coordinators' default
	retries                *uint32       // nil = the coordinators' default
}

// build makes the job: one task, an array, or a batch of equal tasks. Errors name flags
// and arguments.
func (j inlineJob) build(opts spec.Options) (*dtaskv1.JobSpec, error) {
	id := ""
	switch {
	case len(j.command) > 0:
		id = runTask
	case j.taskType == "":
		j.taskType, j.payload = batchType, batchPayload
	}
	job, err := spec.Single(spec.SingleTask{
		Type: j.taskType, Command: j.command, Payload: []byte(j.payload), Priority: j.priority, Name: j.name, ID: id,
		Array: j.array, Cwd: j.cwd, Env: j.env, Labels: j.labels, Resources: j.resources, Uses: j.uses,
		Preemptible: j.preemptible, Timeout: j.timeout, Retries: j.retries, Options: opts,
	})
	if err != nil {
		return nil, flagFaults(err)
	}
	if j.batch > 0 {
		job.Tasks = repeatTask(job.GetTasks()[0], j.batch)
	}
	if j.randomPriority {
		randomizePriorities(job)
	}
	return job, nil
}

// flagFaults makes the faults of a job without a file name the flags and arguments that
// they come from.
func flagFaults(err error) error {
	faults, ok := errors.AsType[spec.Faults](err)
	if !ok {
		return err
	}
	for i := range faults {
		faults[i].Where = flagOf(faults[i].Where)
	}
	return faults
}

// flagOf returns the flag or argument that sets a field of a job, such as env.LANG.
func flagOf(field string) string {
	name, rest := field, ""
	if i := strings.IndexAny(field, ".["); i >= 0 {
		name, rest = field[:i], strings.Trim(field[i:], ".[]")
	}
	switch name {
	case "command":
		if n, err := strconv.Atoi(rest); err == nil {
			return argumentName(n)
		}
		return "the command"
	case "env", "labels", "resources":
		return strings.TrimSpace("--" + strings.TrimSuffix(name, "s") + " " + rest)
	case "array", "cwd", "name", "payload", "priority", "type":
		return "--" + name
	case "uses":
		return "--uses"
	case "retry":
		return "--retries"
	case "timeout":
		return "--task-timeout"
	}
	return field
}

// argumentName names the program, or one of its arguments, in messages.
func argumentName(i int) string {
	if i == 0 {
		return "the command"
	}
	return fmt.Sprintf("argument %d of the command", i)
}

// repeatTask makes n tasks like t, numbered from 1. They share t's body.
func repeatTask(t *dtaskv1.TaskSpec, n int) []*dtaskv1.TaskSpec {
	tasks := make([]*dtaskv1.TaskSpec, n)
	width := len(fmt.Sprint(n))
	for i := range tasks {
		tasks[i] = &dtaskv1.TaskSpec{
			Id:     fmt.Sprintf("%.40s-%0*d", t.GetId(), width, i+1),
			Policy: t.GetPolicy(), Body: t.GetBody(),
		}
	}
	return tasks
}

// randomizePriorities gives each task one of the four priorities.
func randomizePriorities(job *dtaskv1.JobSpec) {
	header := job.GetHeader()
	policy := header.GetPolicies()[0]
	header.Policies = nil
	for p := dtaskv1.Priority_PRIORITY_LOW; p <= dtaskv1.Priority_PRIORITY_URGENT; p++ {
		one := proto.CloneOf(policy)
		one.Priority = p
		header.Policies = append(header.GetPolicies(), one)
	}
	for _, t := range job.GetTasks() {
		t.Policy = rand.Uint32N(4) //nolint:gosec // not a secret
	}
}
