// Package dtaskd is the program dtaskd, a coordinator: one replica of a cluster of one,
// three or five, or, with --dev, a coordinator and a worker in one process. It parses
// flags and settings, calls coordinator.Run, and returns an exit code.
package dtaskd

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
	"github.com/dtask/dtask/coordinator/offline"
	"github.com/dtask/dtask/internal/buildinfo"
	"github.com/dtask/dtask/internal/config"
	"github.com/dtask/dtask/internal/program"
	"github.com/dtask/dtask/worker"
	"github.com/dtask/dtask/worker/process"
)

// extraGarbage is the garbage in bytes, beyond the size of the live heap, that a
// coordinator may accumulate before a collection. A follower has a small heap and
// allocates 0.5 KiB per task.
const extraGarbage = 64 << 20

// fileGarbage is the same for the commands that build the state of a backup in memory. They
// end soon, and almost everything that a collection marks is live.
const fileGarbage = 512 << 20

// garbage returns which of them a command line has.
func garbage(args []string) int {
	if len(args) > 0 && (args[0] == "restore" || args[0] == "backup") {
		return fileGarbage
	}
	return extraGarbage
}

// Main is main of the program: it ends the process.
func Main() {
	process.RunSupervisor() // with --dev this binary is a worker, too
	program.SampleHeap()
	program.TuneBuffers()
	program.DeferCollection(garbage(os.Args[1:]))
	stop := program.ReturnMemory()
	code := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is Main without the process: it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cmd := command(args, stdout, stderr) //nolint:contextcheck // cobra passes the context on
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		_, _ = fmt.Fprintln(stderr, "dtaskd:", line) // there is no other way to report it
	}
	var usage *program.UsageError
	var fatal *coordinator.FatalError
	var name *worker.NameInUseError // with --dev
	var refused *refusedError
	switch {
	case offline.IsDamage(err), offline.IsBackupDamage(err):
		return program.ExitFatal
	case errors.As(err, &usage):
		return program.ExitUsage
	case errors.As(err, &fatal):
		return program.ExitFatal
	case errors.As(err, &name):
		return program.ExitInUse
	case errors.As(err, &refused):
		return program.ExitRefused
	}
	return program.ExitFailed
}

const long = `dtaskd runs one coordinator. Three or five coordinators with the same --peers form a
cluster that replicates every job by Raft and survives the loss of any minority of
them. A single one is a cluster, too. To add one later, list the members and itself in
--peers and run dtaskctl cluster add.

  dtaskd --dev
  dtaskd --id n1 --data-dir /var/lib/dtask/n1 --listen 127.0.0.1:7460 \
         --peers n1=127.0.0.1:7460,n2=127.0.0.1:7470,n3=127.0.0.1:7480

The same command line restarts it, also after a crash. SIGTERM and SIGINT transfer
leadership and stop it; a second signal exits immediately. With --dev, the first one lets
running tasks continue for 30 s, the second one stops them, and the third one exits.
SIGHUP, which a closed terminal sends, is like the first one.

The commands inspect, recover and rejoin work on the data directory of a stopped replica,
backup and restore on backups.

Every flag can also be set as an environment variable, such as DTASK_DATA_DIR, and in
the --config file.`

func command(args []string, stdout, stderr io.Writer) *cobra.Command {
	s := settings{args: args}
	cmd := &cobra.Command{
		Use:           "dtaskd",
		Short:         "Run one coordinator of a dtask cluster",
		Long:          long,
		Version:       buildinfo.Version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := config.Fill(cmd.Flags(), os.LookupEnv); err != nil {
				return &program.UsageError{Err: err}
			}
			s.retriesSet, s.slotsSet = cmd.Flags().Changed("max-retries"), cmd.Flags().Changed("slots")
			return s.run(cmd.Context(), cmd.Flags(), stdout, stderr)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &program.UsageError{Err: config.FlagError(err)} })
	s.bind(cmd)
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.AddCommand(initCommand(stdout, stderr), joinCommand(os.Stdin, stdout, stderr), inspectCommand(stdout), recoverCommand(stdout, stderr), rejoinCommand(stdout),
		backupCommand(stdout), restoreCommand(stdout, stderr))
	return cmd
}

func (s *settings) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&s.dev, "dev", false, "one coordinator and one worker in this process")
	f.IntVar(&s.slots, "slots", 0, "with --dev: concurrent attempts, 1–65535 (default: the number of CPUs)")
	f.StringVar(&s.id, "id", "", "server id, unique in the cluster and never reused (default with --dev: dev)")
	f.StringVar(&s.dataDir, "data-dir", "", "data directory of this replica, created if missing (default with --dev: a temporary one)")
	f.StringVar(&s.listen, "listen", defaultAddress, "HOST:PORT for clients, workers and other replicas")
	f.StringVar(&s.http, "http", "127.0.0.1:7461", "HOST:PORT for /metrics, /healthz and /readyz (empty = none)")
	f.StringSliceVar(&s.httpHosts, "http-hosts", nil, "further host names under which --http may be requested (default: addresses, localhost, and the names of this host in --http, --advertise and its certificate)")
	f.StringVar(&s.advertise, "advertise", "", "HOST:PORT that others dial (default: --listen)")
	f.StringSliceVar(&s.peers, "peers", nil, "first members, ID=HOST:PORT each, this replica included; must match on all of them")
	f.StringVar(&s.tlsDir, "tls-dir", "", "directory with tls.crt, tls.key and ca.crt of this replica (dtaskctl tls issue): all connections use TLS, and addresses may be off loopback; changed files are used without a restart")
	f.IntVar(&s.maxConns, "max-connections-per-address", coordinator.DefaultMaxConnsPerAddress, "open connections to --listen of one other machine, or of all machines behind one NAT; replicas and this machine are not limited")
	f.DurationVar(&s.heartbeat, "heartbeat-interval", time.Second, "interval of worker heartbeats; a worker is marked down after 3 missing ones")
	f.DurationVar(&s.raftHeartbeat, "raft-heartbeat", 500*time.Millisecond, "silence of a leader before an election, and of the others before it resigns")
	f.DurationVar(&s.taskTimeout, "task-timeout", time.Hour, "timeout of an attempt, for tasks without one")
	f.DurationVar(&s.startTimeout, "start-timeout", time.Minute, "time for a worker to start an assigned attempt before it is moved, for tasks without a start_timeout")
	f.Uint32Var(&s.maxRetries, "max-retries", 3, "retries after failed attempts, for tasks without a number")
	f.Uint64Var(&s.snapshotBytes, "snapshot-bytes", 64<<20, "minimum size of the log between two snapshots, in bytes (the size of the last snapshot if that is larger)")
	f.StringVar(&s.logStore, "log-store", string(coordinator.LogBolt), "log store, bolt or wal (lower latency, docs/tuning.md); a data directory keeps its first one")
	f.DurationVar(&s.keepFor, "keep-for", 7*24*time.Hour, "retention of finished jobs that can be retried, and of their dead letters, before they move to the history")
	f.IntVar(&s.keepJobs, "keep-jobs", 10_000, "finished jobs kept before they move to the history")
	f.StringVar(&s.historyAge, "history-age", "90d", "history retention by age, such as 90d or 36h (0 = unlimited); must match on all replicas")
	f.Uint64Var(&s.historyJobs, "history-jobs", 50_000_000, "history retention by number of jobs")
	f.Uint64Var(&s.historyBytes, "history-bytes", 20<<30, "history retention by bytes on disk")
	f.Uint64Var(&s.minFree, "min-free-bytes", coordinator.DefaultMinFree().Bytes, "free bytes on the disk of --data-dir below which new jobs are refused; below half of it, leadership is transferred")
	f.Uint64Var(&s.minFreePercent, "min-free-percent", coordinator.DefaultMinFree().Percent, "the same in percent of the disk; the larger limit applies")
	f.Float64Var(&s.submitRate, "submit-rate", 0, "jobs per second and owner; excess submissions are rejected with a retry delay (0 = unlimited); must match on all replicas")
	f.IntVar(&s.submitBurst, "submit-burst", 0, "with --submit-rate: jobs that an owner may submit at once (default: 10 × --submit-rate, at least 1)")
	f.StringVar(&s.deadWebhook, "dead-letter-webhook", "", "URL that receives each new dead letter (docs/webhooks.md); must match on all replicas")
	f.StringVar(&s.deadCommand, "dead-letter-command", "", "absolute path of a program that the leader runs for each new dead letter, with JSON on its stdin")
	f.StringVar(&s.secretFile, "webhook-secret-file", "", "file with the key that signs webhooks, whsec_ and base64 (default: unsigned)")
	f.StringVar(&s.backupCommand, "backup-command", "", "absolute path of a program that this coordinator runs after each backup of the schedule that it has written, with the path of the new file as its argument; set it on all coordinators (docs/operations.md)")
	f.DurationVar(&s.upgradeAfter, "upgrade-after", time.Hour, "time for which all members must support a feature level before the leader raises the cluster to it (0 = at once; docs/upgrading.md)")
	f.StringSliceVar(&s.webhookAllow, "webhook-allow", nil, "CIDR of private addresses that webhooks of jobs may reach, repeatable (loopback is allowed if --listen is loopback, as it is with --dev); must match on all replicas")
	f.StringVar(&s.audit, "audit", "", "audit log in DATA-DIR/audit: off, best-effort, or required, which refuses changes while it can't be written (default: best-effort with --tls-dir, else off; docs/security.md)")
	f.BoolVar(&s.auditReads, "audit-reads", false, "record calls that only read in the audit log, too")
	f.Int64Var(&s.auditFileBytes, "audit-file-bytes", coordinator.DefaultAuditFileBytes, "size in bytes from which on a file of the audit log is followed by another one")
	f.IntVar(&s.auditFiles, "audit-files", coordinator.DefaultAuditFiles, "files of the audit log that are kept, 2 or more")
	f.StringVar(&s.replace, "replace", "", "server id of the lost member whose place this new replica takes (dtaskd join --replace stores it)")
	f.BoolVar(&s.autoRejoin, "auto-rejoin", false, "rejoin under a new server id, such as n2-1, if the data directory is lost or damaged")
	f.StringVar(&s.logLevel, "log-level", "info", "log level: debug, info, warn or error")
	f.StringVar(&s.logFormat, "log-format", "text", "log format: text or json")
	config.AddFlag(f)
}
