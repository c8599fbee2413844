// Command dtask-worker executes tasks for a cluster of coordinators. It is flags
// and settings, then worker.Run, then an exit code.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/internal/config"
	"github.com/dtask/dtask/internal/program"
	"github.com/dtask/dtask/worker"
	"github.com/dtask/dtask/worker/builtin"
	"github.com/dtask/dtask/worker/process"
)

// version is set by the build.
var version = "dev"

// deferred is how much garbage a worker gathers before it is collected, beside as much as
// is live, in bytes. It has a goroutine for each slot and little else.
const deferred = 16 << 20

func main() {
	process.RunSupervisor()
	program.TuneBuffers()
	program.DeferCollection(deferred)
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program without its process.
func run(args []string, stdout, stderr io.Writer) int {
	cmd := command(stderr)
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(context.Background())
	if err == nil {
		return 0
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		_, _ = fmt.Fprintln(stderr, "dtask-worker:", line) // nobody is left to tell
	}
	if _, ok := errors.AsType[*program.UsageError](err); ok {
		return program.ExitUsage
	}
	return program.ExitFailed
}

// settings are the flags.
type settings struct {
	worker    worker.Config
	resources map[string]string
	logLevel  string
	logFormat string
}

func command(stderr io.Writer) *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "dtask-worker --join HOST:PORT[,HOST:PORT…]",
		Short: "Executes tasks for a dtask cluster",
		Long: "dtask-worker finds the leader through any coordinator that --join names, executes\n" +
			"the tasks that it is given, and looks for the leader again whenever it is lost.\n" +
			"It may be started before any coordinator.\n\n" +
			"SIGTERM and SIGINT drain it: it takes nothing new, finishes what runs, and hands\n" +
			"back the rest. A second signal hands back what still runs at once; a third ends the\n" +
			"process without a word to anybody.\n\n" +
			"Every flag is also a variable, as DTASK_DRAIN_TIMEOUT, and a key of the --config file.",
		Version:       version,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := config.Fill(cmd.Flags(), os.LookupEnv); err != nil {
				return &program.UsageError{Err: err}
			}
			return s.run(cmd.Context(), stderr)
		},
	}
	// Cobra's own errors, of arguments and flags, are all mistakes of usage.
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &program.UsageError{Err: err} })
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return &program.UsageError{Err: fmt.Errorf("unexpected argument %q", args[0])}
		}
		return nil
	}
	f := cmd.Flags()
	f.StringSliceVar(&s.worker.Join, "join", nil, "addresses of coordinators, HOST:PORT; any one that is alive is enough")
	f.StringVar(&s.worker.Name, "name", "", "name of this worker, stable across restarts (default: the host's name)")
	f.IntVar(&s.worker.Slots, "slots", 0, "attempts that run at a time, 1–65535 (default: the number of processors)")
	f.IntVar(&s.worker.Prefetch, "prefetch", -1, "attempts that wait here for a slot while tasks are short, so that no slot waits for the leader; 0 = none, -1 = as many as --slots")
	f.StringToStringVar(&s.worker.Labels, "label", nil, "label k=v that tasks can require; repeatable")
	f.StringToStringVar(&s.resources, "resource", nil, "resource name=amount that tasks can ask for, such as gpu=2 or memory=8GiB; repeatable (default: cpu, memory and disk of this machine)")
	f.StringVar(&s.worker.WorkDir, "work-dir", "", "this worker's own folder (default: dtask-worker/NAME in $XDG_STATE_HOME or the user's cache folder)")
	f.DurationVar(&s.worker.DrainTimeout, "drain-timeout", 30*time.Second, "how long running attempts may go on after SIGTERM, or until a second one; 0 = not at all")
	f.DurationVar(&s.worker.CheckpointInterval, "checkpoint-interval", 5*time.Second, "least time between two checkpoints of an attempt; 0 = none")
	f.StringVar(&s.worker.CheckpointStore, "checkpoint-store", "", "existing folder that all workers share, for checkpoints above 64 KiB (default: those stay on this worker)")
	f.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&s.logFormat, "log-format", "text", "text or json")
	config.AddFlag(f)
	return cmd
}

// run builds the worker and runs it until it is drained.
func (s *settings) run(ctx context.Context, stderr io.Writer) error {
	log, err := program.NewLogger(stderr, s.logLevel, s.logFormat)
	if err != nil {
		return &program.UsageError{Err: err}
	}
	if s.worker.Resources, err = parseResources(s.resources); err != nil {
		return &program.UsageError{Err: err}
	}
	if s.worker.Slots < 0 {
		return &program.UsageError{Err: fmt.Errorf("--slots: %d must be 1–65535", s.worker.Slots)}
	}
	switch {
	case s.worker.Prefetch < -1:
		return &program.UsageError{Err: fmt.Errorf("--prefetch: %d must be -1 to 65535", s.worker.Prefetch)}
	case s.worker.Prefetch == 0:
		s.worker.Prefetch = -1 // none; 0 is the default
	case s.worker.Prefetch == -1:
		s.worker.Prefetch = 0
	}
	if s.worker.DrainTimeout <= 0 {
		s.worker.DrainTimeout = -1 // at once; 0 would be the default
	}
	if s.worker.CheckpointInterval <= 0 {
		s.worker.CheckpointInterval = -1 // none; 0 would be the default
	}
	s.worker.Version = version
	w, err := worker.New(s.worker, worker.WithLogger(log))
	if err != nil {
		return &program.UsageError{Err: err}
	}
	builtin.Register(w)

	ctx, stop := program.UntilSignal(ctx, log, w.Hurry)
	defer stop()
	return w.Run(ctx) //nolint:wrapcheck // says what it did
}
