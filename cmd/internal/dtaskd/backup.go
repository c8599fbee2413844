package dtaskd

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/coordinator"
	"github.com/dtask/dtask/coordinator/offline"
	"github.com/dtask/dtask/internal/config"
	"github.com/dtask/dtask/internal/program"
)

// fileCommand makes a command about a backup file, with --output.
func fileCommand(f *offlineFlags, cmd *cobra.Command, run func(cmd *cobra.Command, path string) error) *cobra.Command {
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return &program.UsageError{Err: errors.New("name one backup FILE, which dtaskctl backup save has written")}
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := config.Fill(cmd.Flags(), os.LookupEnv); err != nil {
			return &program.UsageError{Err: err}
		}
		if f.output != "text" && f.output != "json" {
			return &program.UsageError{Err: fmt.Errorf("invalid --output %q: must be text or json", f.output)}
		}
		return run(cmd, args[0])
	}
	cmd.Flags().StringVarP(&f.output, "output", "o", "text", "output format: text or json")
	cmd.Flags().StringVar(&f.identity, "identity", "", "file with the secret key of age that an encrypted backup is for")
	return cmd
}

func backupCommand(stdout io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Inspect and verify backups",
		Long:  "Inspect and verify backups that dtaskctl backup save has written. No cluster is needed.",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(backupInspectCommand(stdout), backupVerifyCommand(stdout))
	return cmd
}

func backupInspectCommand(stdout io.Writer) *cobra.Command {
	f := &offlineFlags{}
	return fileCommand(f, &cobra.Command{
		Use:   "inspect FILE|DIR",
		Short: "Show what a backup contains",
		Long: `Show what a backup contains. The whole file is read and checked, as by verify.

Exit codes: 0 it is complete; 1 it can't be read, or needs a newer version; 2 usage;
70 it is incomplete or damaged.`,
		Example: `  dtaskd backup inspect cluster.dtbk
  dtaskd backup inspect cluster.dtbk -o json
  dtaskd backup inspect cluster.dtbk --identity backups.key`,
	}, func(_ *cobra.Command, path string) error {
		report, err := offline.InspectBackup(path, f.identity)
		if err != nil {
			return err
		}
		return f.print(stdout, report, report.Write)
	})
}

func backupVerifyCommand(stdout io.Writer) *cobra.Command {
	f := &offlineFlags{}
	return fileCommand(f, &cobra.Command{
		Use:   "verify FILE|DIR",
		Short: "Check that a backup can be restored",
		Long: `Check that a backup can be restored by this version: it is complete, all checksums match,
and its state is built in memory and satisfies all invariants.

Exit codes: 0 it can be restored; 1 it can't be read, or needs a newer version; 2 usage;
70 it is incomplete or damaged.`,
		Example: `  dtaskd backup verify cluster.dtbk
  dtaskd backup verify cluster.dtbk --identity backups.key`,
	}, func(_ *cobra.Command, path string) error {
		report, err := offline.InspectBackup(path, f.identity)
		if err != nil {
			return err
		}
		return f.print(stdout, report, func(w io.Writer) {
			_, _ = fmt.Fprintf(w, "%s is complete: %d bytes, cluster %s, log entry %d, sha256 %s\n",
				report.File, report.Bytes, report.ClusterID, report.Index, report.SHA256) // as other text
		})
	})
}

func restoreCommand(stdout, stderr io.Writer) *cobra.Command {
	f := &offlineFlags{}
	cfg := offline.RestoreConfig{}
	var atMostOnce, logStore string
	cmd := fileCommand(f, &cobra.Command{
		Use:   "restore FILE|DIR",
		Short: "Make a new cluster from a backup",
		Long: `Make the data directory of a new cluster from a backup, with one coordinator as its only
member. DIR is a directory of dtaskctl backup save --to, or of a schedule of backups: its
newest backup is used. The data directory must be empty or missing. Nothing is left behind
if the backup is incomplete, damaged, or of a newer version.

The new cluster has a new ID and a higher fencing epoch: coordinators and workers of the
old one are refused, and its fencing tokens are never valid again. Job numbers and log
indexes continue with a gap of 1,048,576. Tasks that were running are ready again.
At-most-once tasks that had not ended become lost, because they may have started.

Tokens and join tokens are dropped, because one that was revoked after the backup would be
valid again: make new ones through the socket of the coordinator. Workers keep their
identities. Restart them, and the programs that use the old cluster.

--revocations repeats what was revoked after the backup: tokens, if they are kept, join
tokens and workers. It names a file of the audit log of a coordinator of the old cluster
(DATA-DIR/audit/audit-….jsonl, or a copy), or a directory of such files. Each coordinator
has recorded the revocations of the time when it led: name the files of all of them.

Exit codes: 0 restored; 1 refused or failed; 2 usage; 70 the backup is incomplete or damaged.`,
		Example: `  dtaskd restore cluster.dtbk --data-dir /var/lib/dtask/n1 --id n1 --address 10.0.0.1:7460
  dtaskd restore cluster.dtbk --data-dir /var/lib/dtask/n1 --id n1 --address 127.0.0.1:7460 \
         --keep-tokens --revocations n1/audit --revocations n2/audit --revocations n3/audit`,
	}, func(cmd *cobra.Command, path string) (err error) {
		if err := checkRestore(&cfg, atMostOnce, logStore); err != nil {
			return &program.UsageError{Err: err}
		}
		cfg.File, cfg.Identities = path, f.identity
		if cfg.Logger, err = program.NewLogger(stderr, "warn", "text"); err != nil {
			return err
		}
		ctx, stop := program.UntilSignal(cmd.Context(), cfg.Logger)
		defer stop()
		done, err := offline.Restore(ctx, cfg, time.Now())
		if err != nil {
			return err
		}
		return f.print(stdout, done, done.Write)
	})
	fl := cmd.Flags()
	fl.StringVar(&cfg.DataDir, "data-dir", "", "data directory of the new cluster's first coordinator, empty or missing")
	fl.StringVar(&cfg.Server, "id", "", "server id of that coordinator, as on its command line")
	fl.StringVar(&cfg.Address, "address", "", "HOST:PORT that other replicas dial: --advertise, or --listen, of its command line")
	fl.StringVar(&logStore, "log-store", string(coordinator.LogBolt), "log store: bolt or wal")
	fl.StringVar(&cfg.Expect, "expect", "", "ID of the cluster that the backup must be of (default: any)")
	fl.StringVar(&atMostOnce, "at-most-once", "lost", "what happens to at-most-once tasks that had not ended: lost or run (again)")
	fl.BoolVar(&cfg.KeepTokens, "keep-tokens", false, "keep the identities of users, with their tokens, and the join tokens: also those that were revoked after the backup, unless --revocations has that")
	fl.StringArrayVar(&cfg.Revocations, "revocations", nil, "file of an audit log of the old cluster, or directory of such files, whose revocations are repeated (repeatable)")
	fl.BoolVar(&cfg.DropWorkers, "drop-workers", false, "drop the workers and their identities: they must join again")
	return cmd
}

// checkRestore checks the flags of restore.
func checkRestore(cfg *offline.RestoreConfig, atMostOnce, logStore string) error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(cfg.DataDir != "", "--data-dir is required")
	check(cfg.Server != "" && !strings.ContainsAny(cfg.Server, " =,"), "--id is required, such as n1")
	host, port, err := net.SplitHostPort(cfg.Address)
	check(err == nil && host != "" && port != "", "invalid --address %q: must be HOST:PORT", cfg.Address)
	check(atMostOnce == "lost" || atMostOnce == "run", "invalid --at-most-once %q: must be lost or run", atMostOnce)
	cfg.KeepAtMostOnce, cfg.Kind = atMostOnce == "run", coordinator.LogStore(logStore)
	return errors.Join(append(errs, cfg.Kind.Validate())...)
}
