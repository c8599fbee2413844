// Command dtask-worker executes tasks for a cluster of coordinators. It is flags
// and settings, then worker.Run, then an exit code.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/internal/config"
	"github.com/dtask/dtask/worker"
	"github.com/dtask/dtask/worker/builtin"
	"github.com/dtask/dtask/worker/process"
)

// version is set by the build.
var version = "dev"

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
	exitAtOnce = 130 // a second signal
)

// usageError is a mistake of whoever started the program.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func main() {
	process.RunKeeper()
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
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	return exitFailed
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
			"back the rest. A second signal ends it at once.\n\n" +
			"Every flag is also a variable, as DTASK_DRAIN_TIMEOUT, and a key of the --config file.",
		Version:       version,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := config.Fill(cmd.Flags(), os.LookupEnv); err != nil {
				return &usageError{err}
			}
			return s.run(cmd.Context(), stderr)
		},
	}
	// Cobra's own errors, of arguments and flags, are all mistakes of usage.
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return &usageError{fmt.Errorf("unexpected argument %q", args[0])}
		}
		return nil
	}
	f := cmd.Flags()
	f.StringSliceVar(&s.worker.Join, "join", nil, "addresses of coordinators, HOST:PORT; any one that is alive is enough")
	f.StringVar(&s.worker.Name, "name", "", "name of this worker, stable across restarts (default: the host's name)")
	f.IntVar(&s.worker.Slots, "slots", 0, "attempts that run at a time, 1–65535 (default: the number of processors)")
	f.StringToStringVar(&s.worker.Labels, "label", nil, "label k=v that tasks can require; repeatable")
	f.StringToStringVar(&s.resources, "resource", nil, "resource name=amount that tasks can ask for, such as gpu=2 or memory=8GiB; repeatable (default: cpu, memory and disk of this machine)")
	f.StringVar(&s.worker.WorkDir, "work-dir", "", "this worker's own folder (default: dtask-worker/NAME in $XDG_STATE_HOME or the user's cache folder)")
	f.DurationVar(&s.worker.DrainTimeout, "drain-timeout", 30*time.Second, "how long running attempts may go on after SIGTERM; 0 = not at all")
	f.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&s.logFormat, "log-format", "text", "text or json")
	config.AddFlag(f)
	return cmd
}

// run builds the worker and runs it until it is drained.
func (s *settings) run(ctx context.Context, stderr io.Writer) error {
	log, err := s.logger(stderr)
	if err != nil {
		return &usageError{err}
	}
	if s.worker.Resources, err = parseResources(s.resources); err != nil {
		return &usageError{err}
	}
	if s.worker.Slots < 0 {
		return &usageError{fmt.Errorf("--slots: %d must be 1–65535", s.worker.Slots)}
	}
	if s.worker.DrainTimeout <= 0 {
		s.worker.DrainTimeout = -1 // at once; 0 would be the default
	}
	s.worker.Version = version
	w, err := worker.New(s.worker, worker.WithLogger(log))
	if err != nil {
		return &usageError{err}
	}
	builtin.Register(w)

	ctx, stop := untilSignal(ctx, log)
	defer stop()
	return w.Run(ctx) //nolint:wrapcheck // says what it did
}

// untilSignal is done at the first SIGTERM or SIGINT; a second one ends the
// process. Its keepers notice that and kill what they run.
func untilSignal(parent context.Context, log *slog.Logger) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2) // both may come before we look
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for count := 1; ; count++ {
			select {
			case sig := <-signals:
				if count > 1 {
					log.WarnContext(ctx, "second signal, ending at once", "signal", sig.String())
					os.Exit(exitAtOnce)
				}
				log.InfoContext(ctx, "signal", "signal", sig.String())
				cancel()
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		<-ended
		cancel()
	}
}

func (s *settings) logger(out io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level: %q is none of debug, info, warn, error", s.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch s.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(out, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(out, options)), nil
	default:
		return nil, fmt.Errorf("--log-format: %q is neither text nor json", s.logFormat)
	}
}
