package cli

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newScheduleSet(a *app) *cobra.Command {
	var (
		f         nextFlags
		namespace string
		version   uint32
	)
	cmd := &cobra.Command{
		Use:   "set FILE|-",
		Short: "Make or replace the schedule of a job file",
		Long: `Make a schedule of a job file that has the field schedule, or replace the one with the
name and the namespace of its job. It prints the next 3 ticks, and the version of the time
zones that the coordinator computes them with. The cluster starts a job at each of them,
under every leader exactly one.

A schedule that is replaced keeps its last runs, and stays paused if it is. Ticks before
the replacement never fire. Setting the same file again changes nothing.`,
		Example: `  dtaskctl schedule set nightly.yaml
  dtaskctl schedule set nightly.yaml --if-version 3
  dtaskctl schedule set report.yaml --set day=monday --namespace etl`,
		Args: oneArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts := a.specOptions()
			opts.Now = a.now()
			s, err := f.read(args[0], a.in, opts)
			if err != nil {
				return err
			}
			inNamespace(namespace, s.Job)
			return a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
				x, err := c.SetSchedule(ctx, s.Job, s.Definition(), version)
				if err != nil {
					locateNames(err, args)
					return view{}, setScheduleError(err)
				}
				a.warnUnplaceable(ctx, c, s.Job)
				return setSchedule(x), nil
			})(cmd, args)
		},
	}
	fl := cmd.Flags()
	bind(fl, &version, "if-version", "", "set only if the schedule has this `VERSION`, unless the same file was set last", integer[uint32](1, math.MaxUint32))
	bindNamespace(fl, &namespace, namespaceUsage)
	f.params.bindParams(fl)
	return cmd
}

// setScheduleError gives a job file that the cluster does not accept the exit code of an
// invalid one.
func setScheduleError(err error) error {
	if errors.Is(err, client.ErrInvalid) {
		return &commandError{err: err, code: exitJobFile} // a limit that only the coordinators know
	}
	return scheduleError(err)
}

// setSchedule is the view of a schedule that was set.
func setSchedule(x *dtaskv1.Schedule) view {
	return view{doc: document.NewSetSchedule(x), text: func(p *show.Printer) {
		state := ""
		if zones := x.GetTimeZones(); zones != "" { // earlier versions of coordinators send none
			state = ", time zones " + zones
		}
		if s := x.GetState(); s != "active" {
			state += "; it is " + s
		}
		p.Line("schedule %s set: version %d, %s per run%s", show.Clean(x.GetName()), x.GetVersion(), show.Plural(x.GetTasks(), "task"), show.Clean(state))
		for _, line := range x.GetWhy() {
			if x.GetState() != "active" {
				p.Line("  %s", show.Clean(line))
			}
		}
		p.NextTicks(x.GetNext())
	}}
}

// changedSchedule is the view of a schedule that was paused or resumed.
func changedSchedule(x *dtaskv1.Schedule, already bool, verb string) view {
	line := fmt.Sprintf("schedule %s %s", show.Clean(x.GetName()), verb)
	if already {
		line = fmt.Sprintf("schedule %s is %s already", show.Clean(x.GetName()), x.GetState())
	}
	return view{doc: document.PausedSchedule{Schedule: document.NewSchedule(x), Already: already}, text: func(p *show.Printer) {
		p.Line("%s", line)
		p.NextTicks(x.GetNext())
	}}
}
