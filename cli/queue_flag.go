package cli

import (
	"github.com/spf13/pflag"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// bindQueue adds the flag for the queue of new jobs.
func bindQueue(fl *pflag.FlagSet, queue *string, usage string) {
	bind(fl, queue, "queue", "", usage, func(text string) (string, error) { return text, spec.CheckName(text) })
}

// setQueue sets the queue of jobs that are to be submitted, unless it is empty.
func setQueue(queue string, jobs ...*dtaskv1.JobSpec) {
	for _, job := range jobs {
		if queue != "" {
			job.GetHeader().Queue = queue
		}
	}
}
