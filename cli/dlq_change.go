package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
)

// A letterSelector says which dead letters to change: those that are named, or
// those that the flags let through.
type letterSelector struct {
	filter client.LetterFilter
	all    bool
	yes    bool
}

func (s *letterSelector) flags(cmd *cobra.Command) {
	letterFlags(cmd, &s.filter)
	cmd.Flags().BoolVar(&s.all, "all", false, "all dead letters of the cluster; asks before it goes on")
	cmd.Flags().BoolVar(&s.yes, "yes", false, "do not ask")
	cmd.Args = s.args
}

// args wants ids or flags, and not both.
func (s *letterSelector) args(cmd *cobra.Command, args []string) error {
	filtered := s.filter.Job != "" || s.filter.Type != ""
	switch {
	case len(args) == 0 && !filtered && !s.all:
		return fmt.Errorf("say which dead letters: JOB/TASK…, --job, --type or --all: %s", cmd.UseLine())
	case len(args) > 0 && (filtered || s.all):
		return errors.New("JOB/TASK and --job, --type or --all exclude each other")
	case filtered && s.all:
		return errors.New("--all and --job or --type exclude each other")
	}
	for _, arg := range args {
		if !strings.Contains(arg, "/") {
			return fmt.Errorf("%q names no task: write JOB/TASK, or --job %s for all of a job", arg, arg)
		}
	}
	return nil
}

// picks finds the dead letters, by job. None of a job means that it has none.
func (s *letterSelector) picks(ctx context.Context, c *client.Client, args []string) ([]pick, error) {
	if len(args) > 0 {
		return picksOf(args)
	}
	letters, err := lettersOf(ctx, c, s.filter)
	if err != nil {
		return nil, err
	}
	var picks []pick
	for _, l := range letters { // those of a job come together
		if n := len(picks); n == 0 || picks[n-1].job != l.GetJob() {
			picks = append(picks, pick{job: l.GetJob()})
		}
		last := &picks[len(picks)-1]
		last.tasks = append(last.tasks, l.GetTask())
	}
	return picks, nil
}

// agreed asks the user about --all, unless --yes. Where nobody can be asked,
// it is an error.
func (s *letterSelector) agreed(a *app, verb string, picks []pick) (bool, error) {
	if !s.all || s.yes || len(picks) == 0 {
		return true, nil
	}
	if !isTerminal(a.in) {
		return false, &usageError{err: fmt.Errorf("standard input is no terminal to ask at: %s --all wants --yes", verb), command: "dtaskctl dlq " + verb}
	}
	return a.ask(fmt.Sprintf("%s %s of %s?", verb, show.Plural(countTasks(picks), "dead letter"), show.Plural(len(picks), "job")))
}

// ask puts a question to the user; yes is the only way to go on.
func (a *app) ask(question string) (yes bool, err error) {
	_, _ = fmt.Fprintf(a.err, "%s [y/N] ", question)
	line, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("reading the answer: %w", err)
	}
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes", nil
}

func countTasks(picks []pick) int {
	n := 0
	for _, p := range picks {
		n += len(p.tasks)
	}
	return n
}

// requeued and purged are what `dlq requeue` and `dlq purge` print.
type requeued struct {
	Requeued int `json:"requeued"`
}

type purged struct {
	Purged int `json:"purged"`
}

func newLettersRequeue(a *app) *cobra.Command {
	var s letterSelector
	cmd := &cobra.Command{
		Use:   "requeue JOB/TASK…",
		Short: "Run dead letters again; their jobs go on",
		Long: `Run dead letters again: their jobs go on, and tasks that were cancelled because of
these come back with them. It is dtaskctl retry for chosen tasks.`,
		Example: `  dtaskctl dlq requeue 42/fetch 42/count
  dtaskctl dlq requeue --job 42
  dtaskctl dlq requeue --type prime
  dtaskctl dlq requeue --all --yes`,
	}
	s.flags(cmd)
	cmd.RunE = a.changeLetters(&s, "requeue", func(ctx context.Context, c *client.Client, p pick) (int, error) {
		if _, err := c.Retry(ctx, p.job, p.tasks); err != nil {
			return 0, err
		}
		return len(p.tasks), nil
	}, func(n int) (any, string) { return requeued{n}, show.Plural(n, "dead letter") + " requeued" })
	return cmd
}

func newLettersPurge(a *app) *cobra.Command {
	var s letterSelector
	cmd := &cobra.Command{
		Use:   "purge JOB/TASK…",
		Short: "Take dead letters out; they stay in their jobs as failed",
		Example: `  dtaskctl dlq purge 42/fetch
  dtaskctl dlq purge --job 42
  dtaskctl dlq purge --type prime
  dtaskctl dlq purge --all --yes`,
	}
	s.flags(cmd)
	cmd.RunE = a.changeLetters(&s, "purge", func(ctx context.Context, c *client.Client, p pick) (int, error) {
		return c.PurgeDeadLetters(ctx, p.job, p.tasks)
	}, func(n int) (any, string) { return purged{n}, show.Plural(n, "dead letter") + " purged" })
	return cmd
}

// changeLetters makes a verb that does something with dead letters, job by job,
// and tells with how many.
func (a *app) changeLetters(s *letterSelector, verb string,
	change func(context.Context, *client.Client, pick) (int, error), tell func(n int) (doc any, text string),
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.client()
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		picks, err := s.picks(cmd.Context(), c, args)
		if err != nil {
			return err
		}
		if ok, err := s.agreed(a, verb, picks); err != nil {
			return err
		} else if !ok {
			picks = nil
		}
		n := 0
		failed := a.each(portions(picks), func(p pick) error {
			did, err := change(cmd.Context(), c, p)
			n += did
			return err
		})
		if n == 0 && failed != nil {
			return failed
		}
		doc, text := tell(n)
		return firstOf(failed, a.print(doc, func(w io.Writer) error {
			if _, err := fmt.Fprintln(w, text); err != nil {
				return fmt.Errorf("writing: %w", err)
			}
			return nil
		}))
	}
}

// portions splits what is more than one call may name. Dead letters do not
// depend on each other, so that each portion makes sense alone.
func portions(picks []pick) []pick {
	var out []pick
	for _, p := range picks {
		for tasks := range slices.Chunk(p.tasks, client.MaxNamed) {
			out = append(out, pick{job: p.job, tasks: tasks})
		}
	}
	return out
}
