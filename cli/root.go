package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/client"
)

// Forms of output.
const (
	outputTable = "table"
	outputJSON  = "json"
	outputYAML  = "yaml"
)

// newRoot makes the whole command tree.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "dtaskctl",
		Short: "Submit jobs to a dtask cluster, watch them, and look after the cluster",
		Example: `  dtaskctl submit job.yaml --wait
  dtaskctl submit --type prime --payload 999999937 --priority high
  dtaskctl status 42
  dtaskctl result 42 -o json
  dtaskctl cluster status`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		Args:              noSuchCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: a.begin,
	}
	f := root.PersistentFlags()
	f.StringArrayVar(&a.addrs, "addr", nil, "coordinators, each a `HOST:PORT`; repeated or with commas (default DTASK_ADDR, or "+client.DefaultAddr+")")
	f.DurationVar(&a.timeout, "timeout", 60*time.Second, "how long to try to reach a leader; if given, also how long to wait for work")
	f.StringVarP(&a.output, "output", "o", outputTable, "`FORM` of standard output: table, json or yaml")
	f.StringVar(&a.color, "color", "auto", "colours: auto, always or never")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{outputTable, outputJSON, outputYAML}, cobra.ShellCompDirectiveNoFileComp))
	_ = root.RegisterFlagCompletionFunc("color", cobra.FixedCompletions([]string{"auto", "always", "never"}, cobra.ShellCompDirectiveNoFileComp))
	root.SetUsageTemplate(usageTemplate)

	root.AddCommand(
		newSubmit(a), newStatus(a), newList(a), newResult(a), newLogs(a), newCancel(a), newUpdate(a), newRetry(a), newWait(a), newWatch(a),
		newLetters(a), newWorker(a), newCluster(a), newBench(a), newVersion(a),
	)
	return root
}

// begin checks the global flags; from then on errors are not of usage.
func (a *app) begin(cmd *cobra.Command, _ []string) error {
	if !slices.Contains([]string{outputTable, outputJSON, outputYAML}, a.output) {
		return fmt.Errorf("--output %q is not table, json or yaml", a.output)
	}
	if !slices.Contains([]string{"auto", "always", "never"}, a.color) {
		return fmt.Errorf("--color %q is not auto, always or never", a.color)
	}
	if a.timeout <= 0 {
		return fmt.Errorf("--timeout %s is not above zero", a.timeout)
	}
	a.timeoutSet = cmd.Flags().Changed("timeout")
	a.started = true
	return nil
}

// noSuchCommand refuses arguments of a command that only has sub-commands, with
// the nearest name.
func noSuchCommand(cmd *cobra.Command, args []string) error {
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

// newNoun makes a command that has verbs only.
func newNoun(use, short, example string, verbs ...*cobra.Command) *cobra.Command {
	noun := &cobra.Command{
		Use: use, Short: short, Example: example,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("%q wants a verb", cmd.CommandPath())
			}
			return noSuchCommand(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	noun.AddCommand(verbs...)
	return noun
}

// oneArgument wants one; the message names it as the usage line does.
func oneArgument(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return fmt.Errorf("an argument is missing: %s", cmd.UseLine())
	case len(args) > 1:
		return fmt.Errorf("unexpected argument %q: %s", args[1], cmd.UseLine())
	}
	return nil
}

// atMost wants up to n arguments.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return fmt.Errorf("unexpected argument %q: %s", args[n], cmd.UseLine())
		}
		return nil
	}
}

// usageTemplate has the examples first.
const usageTemplate = `{{if .HasExample}}Examples:
{{.Example}}

{{end}}Usage:
{{if .HasAvailableSubCommands}}  {{.CommandPath}} COMMAND{{else}}  {{.UseLine}}{{end}}
{{if .HasAvailableSubCommands}}
Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{end}}{{if .HasAvailableLocalFlags}}
Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}
{{end}}{{if .HasAvailableInheritedFlags}}
Global flags:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}
{{end}}`
