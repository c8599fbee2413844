package dtaskd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/coordinator/offline"
	"github.com/dtask/dtask/internal/config"
	"github.com/dtask/dtask/internal/program"
)

// offlineFlags are the flags of the commands that work on a stopped replica's data
// directory.
type offlineFlags struct {
	dataDir  string
	output   string
	yes      bool
	identity string
}

// errNotConfirmed ends a command that would change a data directory.
var errNotConfirmed = errors.New("not confirmed, nothing was changed: repeat the command with --yes")

// offlineCommand makes a command with --data-dir and --output.
func offlineCommand(f *offlineFlags, cmd *cobra.Command, run func(cmd *cobra.Command) error) *cobra.Command {
	cmd.Args = noArguments
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := config.Fill(cmd.Flags(), os.LookupEnv); err != nil {
			return &program.UsageError{Err: err}
		}
		switch {
		case f.dataDir == "":
			return &program.UsageError{Err: errors.New("--data-dir is required")}
		case f.output != "text" && f.output != "json":
			return &program.UsageError{Err: fmt.Errorf("invalid --output %q: must be text or json", f.output)}
		}
		return run(cmd)
	}
	cmd.Flags().StringVar(&f.dataDir, "data-dir", "", "data directory of a stopped replica")
	cmd.Flags().StringVarP(&f.output, "output", "o", "text", "output format: text or json")
	return cmd
}

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &program.UsageError{Err: fmt.Errorf("unexpected argument %q", args[0])}
	}
	return nil
}

// print prints a document, as JSON or as text.
func (f *offlineFlags) print(out io.Writer, doc any, text func(io.Writer)) error {
	if f.output == "text" {
		text(out)
		return nil
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(doc); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

func inspectCommand(stdout io.Writer) *cobra.Command {
	f := &offlineFlags{}
	var onlyHere bool
	var against []string
	var export string
	cmd := offlineCommand(f, &cobra.Command{
		Use:   "inspect",
		Short: "Show what a stopped replica's data directory contains",
		Long: `Show what the data directory of a stopped replica contains, without changing it:
identity, log, vote, snapshots, members, jobs, damage, and whether the replica stays
out of its cluster because it would have lost committed entries.

With --only-here, list the jobs of this replica that the cluster at the addresses of
--against does not have. Jobs of its last entries are marked as unconfirmed if it had not
learned yet whether they were committed. --export writes each job as a job file for
dtaskctl submit.

Exit codes: 0 it was read; 1 it is in use, or is not a data directory; 2 usage;
70 it is damaged (what could be read is printed).`,
		Example: `  dtaskd inspect --data-dir /var/lib/dtask/n1
  dtaskd inspect --data-dir /var/lib/dtask/n1 -o json > n1.json
  dtaskd inspect --data-dir /var/lib/dtask/n1 --only-here --against 127.0.0.1:7470,127.0.0.1:7480 --export lost-jobs`,
	}, func(cmd *cobra.Command) error {
		switch {
		case onlyHere && len(against) == 0:
			return &program.UsageError{Err: errors.New("--only-here requires --against")}
		case !onlyHere && (len(against) > 0 || export != ""):
			return &program.UsageError{Err: errors.New("--against and --export require --only-here")}
		case !onlyHere:
			report, err := offline.Inspect(f.dataDir)
			if report == nil {
				return err
			}
			return errors.Join(f.print(stdout, report, report.Write), err)
		}
		report, err := offline.Missing(cmd.Context(), f.dataDir, against)
		if err != nil {
			return err
		}
		if export != "" {
			if err := report.Export(export); err != nil {
				return err
			}
		}
		return f.print(stdout, report, report.Write)
	})
	cmd.Flags().BoolVar(&onlyHere, "only-here", false, "list the jobs that the cluster in --against does not have")
	cmd.Flags().StringSliceVar(&against, "against", nil, "with --only-here: HOST:PORT of all coordinators of the serving cluster")
	cmd.Flags().StringVar(&export, "export", "", "with --only-here: directory for a job file of each of these jobs")
	return cmd
}

func recoverCommand(stdout io.Writer, stderr io.Writer) *cobra.Command {
	f := &offlineFlags{}
	cfg := offline.RecoverConfig{}
	var than []string
	var atMostOnce string
	cmd := offlineCommand(f, &cobra.Command{
		Use:   "recover",
		Short: "Start a new cluster from one data directory",
		Long: `Make a stopped replica's data directory that of a new cluster with the same jobs and this
replica as its only member. Use it when a majority of the data directories is lost, or
to keep the history of a replica that stays out instead of the majority's.

What only the lost members have is gone. The new cluster has a new ID and a higher
fencing epoch: replicas and workers of the old one are refused, and its fencing tokens
are never valid again. Job numbers and log indexes continue with a gap of 1,048,576.
At-most-once tasks that have not ended become lost, because they may have started.

Without --yes, print what would be kept and lost, and change nothing. The old directory
is renamed, never deleted. All members that are listed in --lost must be stopped.

Exit codes: 0 recovered; 1 refused, not confirmed or failed; 2 usage; 70 damaged.`,
		Example: `  dtaskd recover --data-dir /var/lib/dtask/n1 --lost n2,n3
  dtaskd recover --data-dir /var/lib/dtask/n1 --lost n2,n3 --yes
  dtaskd recover --data-dir /var/lib/dtask/n1 --lost n3,n4,n5 --than n2.json --yes`,
	}, func(cmd *cobra.Command) (err error) {
		if atMostOnce != "lost" && atMostOnce != "run" {
			return &program.UsageError{Err: fmt.Errorf("invalid --at-most-once %q: must be lost or run", atMostOnce)}
		}
		cfg.DataDir, cfg.KeepAtMostOnce = f.dataDir, atMostOnce == "run"
		if cfg.Logger, err = program.NewLogger(stderr, "warn", "text"); err != nil {
			return err
		}
		for _, path := range than {
			text, err := os.ReadFile(path) //nolint:gosec // the operator names it
			if err != nil {
				return fmt.Errorf("--than: %w", err)
			}
			cfg.Than = append(cfg.Than, text)
		}
		plan, err := offline.PlanRecovery(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, plan.Close()) }()
		if f.yes {
			if err := plan.Recover(time.Now()); err != nil {
				return err
			}
		}
		if err := f.print(stdout, plan, plan.Write); err != nil || f.yes {
			return err
		}
		return errNotConfirmed
	})
	cmd.Flags().StringSliceVar(&cfg.Lost, "lost", nil, "server ids of the members that are abandoned")
	cmd.Flags().StringVar(&cfg.Address, "address", "", "HOST:PORT that other replicas dial (default: as before)")
	cmd.Flags().StringSliceVar(&than, "than", nil, "output of dtaskd inspect -o json of other survivors; refuse if one is further ahead")
	cmd.Flags().StringVar(&atMostOnce, "at-most-once", "lost", "what happens to at-most-once tasks that have not ended: lost or run (again)")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do it")
	return cmd
}

func rejoinCommand(stdout io.Writer) *cobra.Command {
	f := &offlineFlags{}
	cmd := offlineCommand(f, &cobra.Command{
		Use:   "rejoin",
		Short: "Give up a data directory and rejoin the cluster",
		Long: `Move the content of a stopped replica's data directory aside, and leave an empty one with
which the replica, started with its usual command line, gets its data from the others
under a new server id. Use it to keep the majority's history when a replica stays out.

List the jobs that only this replica has before: dtaskd inspect --only-here. Nothing is
deleted. Without --yes, print what would be done, and change nothing.

Exit codes: 0 done; 1 refused, not confirmed or failed; 2 usage; 70 damaged.`,
		Example: `  dtaskd rejoin --data-dir /var/lib/dtask/n1
  dtaskd rejoin --data-dir /var/lib/dtask/n1 --yes`,
	}, func(*cobra.Command) error {
		result, err := offline.Discard(f.dataDir, f.yes, time.Now())
		if err != nil {
			return err
		}
		if err := f.print(stdout, result, result.Write); err != nil || f.yes {
			return err
		}
		return errNotConfirmed
	})
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do it")
	return cmd
}
