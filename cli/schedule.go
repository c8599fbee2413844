package cli

import "github.com/spf13/cobra"

func newSchedule(a *app) *cobra.Command {
	return newNoun("schedule", "Preview the schedules of job files", `  dtaskctl schedule next nightly.yaml
  dtaskctl schedule next nightly.yaml -n 3 --from 2026-10-24T00:00:00Z -o json`, newScheduleNext(a))
}
