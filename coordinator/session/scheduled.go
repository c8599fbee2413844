package session

import (
	"maps"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Variables of the commands of a run of a schedule: the time that it runs for, and the time
// that the run before it was for, in UTC. A run by hand may have neither.
const (
	scheduledAtEnv       = "DTASK_SCHEDULED_AT"
	scheduledPreviousEnv = "DTASK_SCHEDULED_PREVIOUS"
)

// jobEnv returns the variables of the commands of a job. Shared: never change it.
func jobEnv(h *dtaskv1.JobHeader) map[string]string {
	run := h.GetRun()
	if run.GetTickMs() == 0 && run.GetPreviousMs() == 0 {
		return h.GetEnv()
	}
	env := maps.Clone(h.GetEnv())
	if env == nil {
		env = make(map[string]string, 2)
	}
	for name, ms := range map[string]int64{scheduledAtEnv: run.GetTickMs(), scheduledPreviousEnv: run.GetPreviousMs()} {
		if ms != 0 {
			env[name] = time.UnixMilli(ms).UTC().Format(time.RFC3339)
		}
	}
	return env
}
