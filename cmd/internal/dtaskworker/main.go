// Package dtaskworker is the program dtask-worker, which executes tasks for a cluster of
// coordinators: it reads flags and settings, calls worker.Run, and returns an exit code.
package dtaskworker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dtask/dtask/internal/buildinfo"
	"github.com/dtask/dtask/internal/config"
	"github.com/dtask/dtask/internal/program"
	"github.com/dtask/dtask/internal/tlsconf"
	"github.com/dtask/dtask/worker"
	"github.com/dtask/dtask/worker/builtin"
	"github.com/dtask/dtask/worker/gpu"
	"github.com/dtask/dtask/worker/process"
)

// gcHeadroom is how much a worker allocates before a garbage collection, in bytes
// beside its live heap, which is small.
const gcHeadroom = 16 << 20

// Main is main of the program: it ends the process.
func Main() {
	process.RunSupervisor()
	program.TuneBuffers()
	program.DeferCollection(gcHeadroom)
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run executes the program and returns its exit code.
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
		_, _ = fmt.Fprintln(stderr, "dtask-worker:", line) // nothing to do about an error
	}
	var (
		usage *program.UsageError
		name  *worker.NameInUseError
		dir   *worker.WorkDirInUseError
		join  *worker.JoinError
		gone  *worker.RevokedError
	)
	switch {
	case errors.As(err, &join), errors.As(err, &gone):
		return program.ExitRefused
	case errors.As(err, &usage):
		return program.ExitUsage
	case errors.As(err, &name), errors.As(err, &dir):
		return program.ExitInUse
	}
	return program.ExitFailed
}

// settings are the values of the flags.
type settings struct {
	worker    worker.Config
	resources map[string]string
	caFile    string
	http      string
	logLevel  string
	logFormat string
}

func command(stderr io.Writer) *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "dtask-worker [--join STRING|-|@FILE|HOST:PORT[,HOST:PORT…]]",
		Short: "Execute tasks for a dtask cluster",
		Long: "dtask-worker finds the leader through any coordinator in --join, executes the tasks\n" +
			"that the leader assigns, and reconnects whenever the leader changes. It may start\n" +
			"before any coordinator.\n\n" +
			"With a join string (dtaskctl join-token create worker), the first start makes a key in\n" +
			"the work directory and joins the cluster. The secret of the string is sent only to a\n" +
			"coordinator of that cluster. Later starts use the key and need no --join; a string that\n" +
			"has expired is ignored. - reads it from standard input and @FILE from a file, so that it\n" +
			"is not in the list of processes.\n\n" +
			"SIGTERM or SIGINT drains the worker: it accepts no new tasks, finishes running ones and\n" +
			"releases the rest. A second signal stops and releases running tasks immediately; a\n" +
			"third exits without waiting for the coordinator. SIGHUP, which a closed terminal sends,\n" +
			"drains it, too.\n\n" +
			"Without --name, the first worker of a host is named after the host, and further ones\n" +
			"HOST-2, HOST-3, … A name that another host uses gets a random suffix. A worker keeps its\n" +
			"name in its work directory. With --name, a name that another live process uses is an\n" +
			"error.\n\n" +
			"Exit codes: 0 drained; 1 failed; 2 usage; 5 another process uses the name or the work\n" +
			"directory; 6 the join string does not work, or the cluster has revoked the identity of\n" +
			"the worker; 130 exited without waiting.\n\n" +
			"Every flag can also be set as an environment variable, such as DTASK_DRAIN_TIMEOUT, and\n" +
			"in the --config file.",
		Version:       buildinfo.Version(),
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := config.Fill(cmd.Flags(), os.LookupEnv); err != nil {
				return &program.UsageError{Err: err}
			}
			return s.run(cmd.Context(), cmd.Flags(), stderr)
		},
	}
	// Errors that Cobra returns for arguments and flags are usage errors.
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &program.UsageError{Err: config.FlagError(err)} })
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return &program.UsageError{Err: fmt.Errorf("unexpected argument %q", args[0])}
		}
		return nil
	}
	f := cmd.Flags()
	f.StringSliceVar(&s.worker.Join, "join", nil, "join string, - or @FILE; or coordinator addresses, HOST:PORT, of which one that is alive is enough")
	f.BoolVar(&s.worker.Replace, "replace", false, "join under the name of a worker whose machine has lost its key")
	f.BoolVar(&s.worker.RotateKey, "rotate-key", false, "replace the key of this worker before its first session (a key that is a year old is replaced anyway)")
	f.StringVar(&s.caFile, "ca-file", "", "file with the CA of the cluster; connections use TLS (empty = plaintext, on loopback only)")
	f.StringVar(&s.worker.Name, "name", "", "worker name, stable across restarts (default: the name kept in the work directory, or the host name; see above)")
	f.IntVar(&s.worker.Slots, "slots", 0, "concurrent attempts, 1–65535 (default: the number of CPUs)")
	f.IntVar(&s.worker.Prefetch, "prefetch", -1, "most attempts that wait at the worker for a slot while tasks are short (0 = none, -1 = 32 for each slot)")
	f.StringToStringVar(&s.worker.Labels, "label", nil, "label KEY=VALUE that tasks can require (repeatable)")
	f.StringToStringVar(&s.resources, "resource", nil, "resource NAME=AMOUNT that tasks can request, such as license=2 or memory=8GiB (repeatable; default: cpu, memory and disk of this machine)")
	f.StringVar(&s.worker.GPUs, "gpus", gpu.Auto, "GPUs that tasks can request as resource gpu: auto, none, or their indexes or UUIDs, such as 0,1 or amd:0,1")
	f.StringVar(&s.worker.WorkDir, "work-dir", "", "work directory of this worker only (default: dtask-worker/NAME in $XDG_STATE_HOME or the user's cache directory; without --name, the first one there that no process uses)")
	f.DurationVar(&s.worker.DrainTimeout, "drain-timeout", 30*time.Second, "time for running attempts to finish after SIGTERM (0 = stop them immediately)")
	f.DurationVar(&s.worker.CheckpointInterval, "checkpoint-interval", 5*time.Second, "minimum time between two checkpoints of an attempt (0 = no minimum)")
	f.StringVar(&s.worker.CheckpointStore, "checkpoint-store", "", "existing directory shared by all workers, for checkpoints above 64 KiB (default: keep them on this worker)")
	f.StringVar(&s.worker.RunAs, "run-as", "", "user of commands, USER or USER:GROUP, or owner for that of each job's owner; the worker must be root, and gets only commands (default: the worker's user)")
	f.StringVar(&s.worker.RunAsMap, "run-as-map", "", "with --run-as owner: file with lines IDENTITY USER [NAMESPACE…], which only root can change")
	f.BoolVar(&s.worker.RequireIsolation, "require-isolation", false, "refuse to start unless commands run as another user (--run-as), with the rights that this needs")
	f.BoolVar(&s.worker.Reserved, "reserved", false, "take only tasks that require one of the labels of this worker")
	f.StringVar(&s.worker.SecretsDir, "secrets-dir", "", "directory with a file for each secret of this worker, which only its user and root can read (default: $CREDENTIALS_DIRECTORY of systemd)")
	f.Int64Var(&s.worker.LogBytes, "log-bytes", 1<<30, "bytes on disk for the output of attempts; the oldest is removed first")
	f.DurationVar(&s.worker.LogAge, "log-age", 7*24*time.Hour, "how long output is kept")
	f.IntVar(&s.worker.LogAttempts, "log-attempts", 1_000_000, "number of attempts whose output is kept")
	f.StringVar(&s.http, "http", "", "HOST:PORT for /metrics and /healthz (empty = none)")
	f.StringVar(&s.logLevel, "log-level", "info", "log level (debug, info, warn or error)")
	f.StringVar(&s.logFormat, "log-format", "text", "log format (text or json)")
	config.AddFlag(f)
	return cmd
}

// run builds the worker and runs it until it is drained.
func (s *settings) run(ctx context.Context, flags *pflag.FlagSet, stderr io.Writer) error {
	log, err := program.NewLogger(stderr, s.logLevel, s.logFormat)
	if err != nil {
		return &program.UsageError{Err: err}
	}
	if err := s.readJoin(os.Stdin); err != nil {
		return err
	}
	if s.caFile != "" {
		trust, err := tlsconf.ReadTrust(s.caFile)
		if err != nil {
			return &program.UsageError{Err: fmt.Errorf("--ca-file: %w", err)}
		}
		s.worker.TLS = trust.Config(nil, nil)
	}
	if s.worker.Resources, err = parseResources(s.resources); err != nil {
		return &program.UsageError{Err: err}
	}
	if s.worker.Slots < 0 || s.worker.Slots == 0 && flags.Changed("slots") { // 0 is the default of the package
		return &program.UsageError{Err: fmt.Errorf("invalid --slots %d: must be 1–65535", s.worker.Slots)}
	}
	switch {
	case s.worker.Prefetch < -1:
		return &program.UsageError{Err: fmt.Errorf("invalid --prefetch %d: must be -1 to 65535", s.worker.Prefetch)}
	case s.worker.Prefetch == 0:
		s.worker.Prefetch = -1 // none; 0 is the default
	case s.worker.Prefetch == -1:
		s.worker.Prefetch = 0
	}
	for _, d := range []*time.Duration{&s.worker.DrainTimeout, &s.worker.CheckpointInterval} {
		if *d <= 0 {
			*d = -1 // none; 0 means the default
		}
	}
	if s.worker.SecretsDir == "" {
		s.worker.SecretsDir = os.Getenv("CREDENTIALS_DIRECTORY")
	}
	s.worker.Version = buildinfo.Version()
	w, err := worker.New(s.worker, worker.WithLogger(log))
	if err != nil {
		return &program.UsageError{Err: err}
	}
	if s.worker.RunAs == "" { // they would read and write any file as root
		builtin.Register(w)
	}
	listener, err := listenHTTP(ctx, s.http)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "configuration", config.Values(flags)...)

	ctx, stop := program.UntilSignal(ctx, log, w.Hurry)
	defer stop()
	return serveDuring(ctx, listener, w, log, w.Run)
}
