package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	"github.com/dtask/dtask/spec"
)

// maxTicks is how many ticks a preview has at most.
const maxTicks = 10_000

// nextFlags are the flags of `schedule next`.
type nextFlags struct {
	count  int
	from   time.Time
	params jobOverrides
	name   client.ScheduleName // of a schedule in the cluster
}

func newScheduleNext(a *app) *cobra.Command {
	var f nextFlags
	cmd := &cobra.Command{
		Use:   "next NAME|FILE|-",
		Short: "Print when a schedule fires next",
		Long: `Print the next times at which a schedule of the cluster fires, or that of a job file. A
name is one of a schedule unless there is a file of that name, or it ends in .yaml, .yml
or .json. A file needs no cluster.

A time is marked if it is unusual: if it does not exist or occurs twice because clocks
are set forward or back, if it follows times that are excluded, or if jitter delays its
start. In JSON, "at" is in UTC and "local" in the time zone of the schedule.`,
		Example: `  dtaskctl schedule next nightly
  dtaskctl schedule next nightly.yaml
  dtaskctl schedule next nightly.yaml -n 3 --from 2026-10-24T00:00:00Z
  dtaskctl schedule next nightly.yaml --set day=monday -o json`,
		Args: oneArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !isJobFile(args[0]) {
				return f.stored(a, cmd, args)
			}
			s, err := f.read(args[0], a.in, a.specOptions())
			if err != nil {
				return err
			}
			begin := f.from
			if begin.IsZero() {
				begin = a.now()
			}
			return a.print(a.ticks(s, begin, f.count))
		},
	}
	fl := cmd.Flags()
	bindP(fl, &f.count, "limit", "n", "10", "maximum number `N` of times", integer[int](1, maxTicks))
	bind(fl, &f.from, "from", "", "print the times after `TIME`, such as 2026-05-01T12:00:00Z (default now)", instant)
	f.params.bindParams(fl)
	bindScheduleNamespace(fl, &f.name)
	return cmd
}

// isJobFile reports whether an argument names a job file and not a schedule.
func isJobFile(arg string) bool {
	if arg == "-" || strings.ContainsRune(arg, filepath.Separator) || slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(arg)) {
		return true
	}
	info, err := os.Stat(arg)
	return err == nil && !info.IsDir() // a directory may have the name of the schedule
}

// stored prints the next ticks of a schedule in the cluster.
func (f *nextFlags) stored(a *app, cmd *cobra.Command, args []string) error {
	for _, name := range []string{"from", "set", "set-file"} {
		if cmd.Flags().Changed(name) {
			return usagef("--%s needs a job file: the cluster has no file %s", name, args[0])
		}
	}
	if f.count > maxShownTicks {
		return usagef("invalid -n, --limit %d: must be from 1 to %d for a schedule of the cluster", f.count, maxShownTicks)
	}
	return a.onSchedule(&f.name, func(ctx context.Context, c *client.Client) (view, error) {
		x, err := c.Schedule(ctx, f.name, uint32(f.count), a.readOptions()) //nolint:gosec // checked
		if err != nil {
			return view{}, err
		}
		doc := document.Ticks{Ticks: []document.Tick{}}
		for _, t := range x.GetNext() {
			doc.Ticks = append(doc.Ticks, document.Tick{At: time.UnixMilli(t.GetAt()).UTC().Format(time.RFC3339), Local: t.GetLocal(), Note: t.GetNote()})
		}
		switch why := x.GetWhy(); {
		case len(doc.Ticks) == 0 && len(why) > 0:
			a.note("schedule %s does not fire: %s", show.Clean(x.GetName()), show.Clean(why[0]))
		case len(doc.Ticks) < f.count:
			a.note("schedule %s is %s and has %s", show.Clean(x.GetName()), x.GetState(), show.Plural(len(doc.Ticks), "next time"))
		}
		return ticksView(doc), nil
	})(cmd, args)
}

// read reads the schedule of a file, or of in for "-".
func (f *nextFlags) read(path string, in io.Reader, opts spec.Options) (*spec.Schedule, error) {
	values, err := f.params.values()
	if err != nil {
		return nil, err
	}
	opts.Params = values
	text, err := readJobFile(path, in)
	if err != nil {
		return nil, err
	}
	return spec.ParseSchedule(path, text, opts) //nolint:wrapcheck // faults name the file
}

// ticks is the view of up to n ticks after an instant.
func (a *app) ticks(s *spec.Schedule, begin time.Time, n int) view {
	doc := document.Ticks{Ticks: []document.Tick{}}
	for _, t := range s.Calendar.Preview(begin, n) {
		doc.Ticks = append(doc.Ticks, document.Tick{
			At: t.At.UTC().Format(time.RFC3339), Local: t.At.Format(time.RFC3339), Note: t.Note,
		})
	}
	switch after := begin.UTC().Format(time.RFC3339); {
	case len(doc.Ticks) == 0:
		a.note("the schedule has ended: it does not fire after %s", after)
	case len(doc.Ticks) < n:
		a.note("the schedule ends: it has %s after %s", show.Plural(len(doc.Ticks), "time"), after)
	}
	return ticksView(doc)
}

// ticksView is a table of ticks. Without any, a note has the reason, and the table is left out.
func ticksView(doc document.Ticks) view {
	return view{doc: doc, text: func(p *show.Printer) {
		if len(doc.Ticks) > 0 {
			p.Ticks(doc.Ticks)
		}
	}}
}

// instant parses a point in time of which also the past is meaningful.
func instant(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	switch {
	case err != nil:
		return at, errors.New("must be a time such as 2026-05-01T12:00:00Z or 2026-05-01T14:00:00+02:00")
	case at.Unix() < 0:
		return at, errors.New("must be after 1970")
	}
	return at, nil
}
