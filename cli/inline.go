package cli

import (
	"fmt"
	"math/rand/v2"

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

// An inlineJob is a job that flags describe.
type inlineJob struct {
	taskType, payload, priority, name string
	batch                             int // tasks; 0 = one
	randomPriority                    bool
}

// build makes the job: one task, or a batch of equal ones.
func (j inlineJob) build(opts spec.Options) (*dtaskv1.JobSpec, error) {
	if j.taskType == "" {
		j.taskType, j.payload = batchType, batchPayload
	}
	job, err := spec.Single(spec.SingleTask{
		Type: j.taskType, Payload: []byte(j.payload), Priority: j.priority, Name: j.name, Options: opts,
	})
	if err != nil {
		return nil, err
	}
	if j.batch > 0 {
		job.Tasks = repeatTask(job.GetTasks()[0], j.batch)
	}
	if j.randomPriority {
		randomizePriorities(job)
	}
	return job, nil
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
