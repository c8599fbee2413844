package cli

import (
	"time"

	"github.com/spf13/pflag"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// timesHelp explains the flags that delay a job.
const timesHelp = `--start-at and --start-after keep the tasks of the new job from starting before a time; with
both, before the later one. --expires cancels it if none of its tasks has started by then.
These flags replace what the files say.`

// timeFlags are the flags that delay a job, or let it expire.
type timeFlags struct {
	startAt             time.Time
	startAfter, expires time.Duration
}

func (f *timeFlags) bind(fl *pflag.FlagSet) {
	bind(fl, &f.startAt, "start-at", "", "`TIME` before which no task starts, such as 2026-05-01T02:00:00Z", spec.ParseInstant)
	bind(fl, &f.startAfter, "start-after", "", "`DURATION` after the submission before which no task starts", duration(time.Millisecond, spec.MaxDuration))
	bind(fl, &f.expires, "expires", "",
		"`DURATION` after which the job is cancelled if no task has started, from its submission or the time it may start", duration(time.Millisecond, spec.MaxDuration))
}

// set sets the times of jobs that are to be submitted.
func (f *timeFlags) set(jobs ...*dtaskv1.JobSpec) {
	for _, job := range jobs {
		h := job.GetHeader()
		if !f.startAt.IsZero() {
			h.StartAtMs = f.startAt.UnixMilli()
		}
		if f.startAfter > 0 {
			h.StartAfterMs = f.startAfter.Milliseconds()
		}
		if f.expires > 0 {
			h.ExpiresMs = f.expires.Milliseconds()
		}
	}
}
