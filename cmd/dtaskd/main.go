// Command dtaskd is a coordinator: one replica of a cluster of one, three or
// five, or, with --dev, a whole system in one process. It is flags and settings,
// then coordinator.Run, then an exit code.
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

	"github.com/dtask/dtask/coordinator"
	"github.com/dtask/dtask/internal/config"
	"github.com/dtask/dtask/internal/program"
	"github.com/dtask/dtask/worker/process"
)

// version is set by the build.
var version = "dev"

// deferred is how much garbage a coordinator gathers before it is collected, beside as much
// as is live, in bytes. A follower holds little and goes through 0.5 KiB for each task.
const deferred = 64 << 20

func main() {
	process.RunSupervisor() // with --dev this binary is a worker, too
	program.TuneBuffers()
	program.DeferCollection(deferred)
	stop := program.ReturnMemory()
	code := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the program without its process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cmd := command(args, stdout, stderr) //nolint:contextcheck // cobra hands the context down
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		_, _ = fmt.Fprintln(stderr, "dtaskd:", line) // nobody is left to tell
	}
	var usage *program.UsageError
	var fatal *coordinator.FatalError
	switch {
	case errors.As(err, &usage):
		return program.ExitUsage
	case errors.As(err, &fatal):
		return program.ExitFatal
	}
	return program.ExitFailed
}

const long = `dtaskd is one coordinator. Three or five of them, started with the same --peers,
agree on every job by Raft; any minority may die at any moment. One alone is a
cluster, too. A further one lists the members and itself in --peers, and waits
until dtaskctl cluster add lets it in.

  dtaskd --dev
  dtaskd --id n1 --data-dir /var/lib/dtask/n1 --listen 127.0.0.1:7460 \
         --peers n1=127.0.0.1:7460,n2=127.0.0.1:7470,n3=127.0.0.1:7480

The same command line restarts it, also after a crash. SIGTERM and SIGINT hand
leadership over and end it; a second signal ends it at once.

Every flag is also a variable, as DTASK_DATA_DIR, and a key of the --config file.`

func command(args []string, stdout, stderr io.Writer) *cobra.Command {
	s := settings{args: args}
	cmd := &cobra.Command{
		Use:           "dtaskd",
		Short:         "Coordinates tasks: one replica of a dtask cluster",
		Long:          long,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &program.UsageError{Err: fmt.Errorf("unexpected argument %q", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := config.Fill(cmd.Flags(), os.LookupEnv); err != nil {
				return &program.UsageError{Err: err}
			}
			s.retriesSet = cmd.Flags().Changed("max-retries")
			return s.run(cmd.Context(), stdout, stderr)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &program.UsageError{Err: err} })
	s.bind(cmd)
	return cmd
}

func (s *settings) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&s.dev, "dev", false, "a whole system in this process: one coordinator and one worker")
	f.IntVar(&s.slots, "slots", 0, "with --dev: attempts that run at a time (default: the number of processors)")
	f.StringVar(&s.id, "id", "", "id of this replica, unique in the cluster for ever (default with --dev: dev)")
	f.StringVar(&s.dataDir, "data-dir", "", "folder of this replica; it is created (default with --dev: a temporary one, removed at the end)")
	f.StringVar(&s.listen, "listen", "127.0.0.1:7460", "HOST:PORT for clients, workers and the other replicas")
	f.StringVar(&s.http, "http", "127.0.0.1:7461", "HOST:PORT for /metrics, /healthz and /readyz; empty: none")
	f.StringVar(&s.advertise, "advertise", "", "HOST:PORT that others dial (default: --listen)")
	f.StringSliceVar(&s.peers, "peers", nil, "the first members, ID=HOST:PORT each, this one included; the same at all of them")
	f.DurationVar(&s.heartbeat, "heartbeat-interval", time.Second, "how often workers say that they are alive; after three silent ones they are given up")
	f.DurationVar(&s.raftHeartbeat, "raft-heartbeat", 500*time.Millisecond, "how long a leader may be silent before another is elected")
	f.DurationVar(&s.taskTimeout, "task-timeout", time.Hour, "time-out of an attempt, for tasks that name none")
	f.Uint32Var(&s.maxRetries, "max-retries", 3, "repeats after a failed attempt, for tasks that do not say")
	f.Uint64Var(&s.snapshotBytes, "snapshot-bytes", 64<<20, "bytes of log between two snapshots")
	f.StringVar(&s.logStore, "log-store", string(coordinator.LogBolt), "where the log is: bolt, or wal, which answers sooner (docs/tuning.md); a data folder keeps the one that it began with")
	f.DurationVar(&s.keepFor, "keep-for", 7*24*time.Hour, "how long ended jobs that can be retried, and their dead letters, are kept before they are history")
	f.IntVar(&s.keepJobs, "keep-jobs", 10_000, "how many ended jobs are kept before they are history")
	f.StringVar(&s.historyAge, "history-age", "90d", "for how long after their end jobs stay in the history, such as 90d or 36h; 0: for ever; the same at all replicas")
	f.Uint64Var(&s.historyJobs, "history-jobs", 50_000_000, "how many jobs stay in the history")
	f.Uint64Var(&s.historyBytes, "history-bytes", 20<<30, "in how many bytes on disk")
	f.Uint64Var(&s.minFree, "min-free-bytes", coordinator.DefaultMinFree().Bytes, "room on the disk of --data-dir below which new jobs are refused; with half of it leadership is handed over")
	f.Uint64Var(&s.minFreePercent, "min-free-percent", coordinator.DefaultMinFree().Percent, "the same, in percent of the disk; the larger of the two counts")
	f.Float64Var(&s.submitRate, "submit-rate", 0, "jobs that one owner may submit per second; more are told to come back; 0: no limit; the same at all replicas")
	f.IntVar(&s.submitBurst, "submit-burst", 0, "with --submit-rate: jobs that one owner may submit at once after a rest (default: 10 × --submit-rate, at least 1)")
	f.StringVar(&s.deadWebhook, "dead-letter-webhook", "", "URL that is told of each new dead letter; the same at all replicas (docs/webhooks.md)")
	f.StringVar(&s.deadCommand, "dead-letter-command", "", "program that is run with each new dead letter as JSON on its standard input, by the leader; an absolute path")
	f.StringVar(&s.secretFile, "webhook-secret-file", "", "file with the key that signs webhooks, whsec_ and base64; without it they are not signed")
	f.BoolVar(&s.autoRejoin, "auto-rejoin", false, "if the data folder is lost or damaged, come back under a new server id that the cluster gives, such as n2-1")
	f.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&s.logFormat, "log-format", "text", "text or json")
	config.AddFlag(f)
}
