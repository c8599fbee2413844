package cli

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/internal/buildinfo"
)

// An outputFormat is a value of --output.
type outputFormat string

const (
	outputTable outputFormat = "table"
	outputJSON  outputFormat = "json"
	outputYAML  outputFormat = "yaml"
)

// A colorMode is a value of --color.
type colorMode string

const (
	colorAuto   colorMode = "auto"
	colorAlways colorMode = "always"
	colorNever  colorMode = "never"
)

// newRoot builds the whole command tree.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "dtaskctl",
		Short: "Submit jobs to a dtask cluster and manage the cluster",
		Example: `  dtaskctl submit job.yaml --wait
  dtaskctl run --wait -- make -C /srv/app test
  dtaskctl status 42
  dtaskctl result 42 -o json
  dtaskctl cluster status`,
		Version:       buildinfo.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			a.timeoutSet = cmd.Flags().Changed("timeout")
			a.started = true
		},
	}
	root.Long = root.Short + ".\n\n" + connectionHelp + "\n\n" + jobForms
	fl := root.PersistentFlags()
	fl.StringArrayVar(&a.addrs, "addr", nil, "addresses of coordinators, `HOST:PORT`, comma-separated or repeated (default: see dtaskctl --help)")
	fl.StringVar(&a.socket, "socket", "", "`PATH` of the Unix socket of a coordinator on this machine (default DTASK_SOCKET)")
	bind(fl, &a.context, "context", "", "`NAME` of a context, which dtaskctl login makes (default DTASK_CONTEXT, or the one in use)", parseContextName)
	fl.StringVar(&a.caFile, "ca-file", "", "`FILE` with the CA of the cluster (default DTASK_CA_FILE, or the context's)")
	fl.StringVar(&a.tokenFile, "token-file", "", "`FILE` with the token (default DTASK_TOKEN_FILE, DTASK_TOKEN, or the context's)")
	fl.StringVar(&a.cluster, "cluster-id", "", "`ID` of the cluster, 32 hexadecimal digits; others are refused (default DTASK_CLUSTER_ID, or the first that answers)")
	bind(fl, &a.timeout, "timeout", "1m0s", "maximum `DURATION` of reaching a leader; if set, also of waiting for jobs", duration(time.Nanosecond, math.MaxInt64))
	bindEnum(root, fl, &a.format, "output", "o", "output `FORMAT`", outputTable, outputJSON,
		outputYAML)
	bindEnum(root, fl, &a.color, "color", "", "colored output `WHEN`", colorAuto, colorAlways,
		colorNever)
	root.SetFlagErrorFunc(flagError)
	root.SetUsageTemplate(usageTemplate)

	root.AddCommand(
		newSubmit(a), newRun(a), newStatus(a), newExplain(a), newPlan(a), newList(a), newResult(a), newLogs(a), newCancel(a), newUpdate(a), newRetry(a), newRerun(a), newWait(a), newWatch(a), newEvents(a),
		newDLQ(a), newSchedule(a), newQueue(a), newLimit(a), newWorker(a), newCluster(a), newTLS(a), newLogin(a), newLogout(a), newContext(a), newWhoAmI(a), newToken(a), newJoinToken(a), newAudit(a), newBackup(a), newTop(a), newDebug(a), newBench(a), newVersion(a),
	)
	a.addCompletions(root)
	return root
}

// unknownCommand rejects the arguments of a command that only has subcommands,
// and suggests the nearest names.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.SuggestionsMinimumDistance == 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return errors.New(text)
}

// newNoun makes a command that only has subcommands.
func newNoun(use, short, example string, verbs ...*cobra.Command) *cobra.Command {
	noun := &cobra.Command{
		Use: use, Short: short, Example: example,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("missing subcommand of %q", cmd.CommandPath())
			}
			return unknownCommand(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	noun.AddCommand(verbs...)
	return noun
}

// usageTemplate puts the examples first, and wraps flags at 100 columns.
const usageTemplate = `{{if .HasExample}}Examples:
{{.Example}}

{{end}}Usage:
{{if .HasAvailableSubCommands}}  {{.CommandPath}} COMMAND{{else}}  {{.UseLine}}{{end}}
{{if .HasAvailableSubCommands}}
Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{end}}{{if .HasAvailableLocalFlags}}
Flags:
{{.LocalFlags.FlagUsagesWrapped 100 | trimTrailingWhitespaces}}
{{end}}{{if .HasAvailableInheritedFlags}}
Global flags:
{{.InheritedFlags.FlagUsagesWrapped 100 | trimTrailingWhitespaces}}
{{end}}`
