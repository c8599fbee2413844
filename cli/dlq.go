package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newLetters(a *app) *cobra.Command {
	return newNoun("dlq", "Look at the dead letters, tasks whose retries are used up, and run them again", `  dtaskctl dlq list
  dtaskctl dlq show 42/fetch
  dtaskctl dlq requeue 42/fetch
  dtaskctl dlq purge --job 42`, newLettersList(a), newLettersShow(a), newLettersRequeue(a), newLettersPurge(a))
}

func newLettersList(a *app) *cobra.Command {
	var f client.LetterFilter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, those of the newest job first",
		Example: `  dtaskctl dlq list
  dtaskctl dlq list --job 42
  dtaskctl dlq list --type prime --limit 10 -o json
  dtaskctl dlq list -q --limit 0`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.Limit < 0 {
				return &usageError{err: fmt.Errorf("--limit %d is negative", f.Limit), command: cmd.CommandPath()}
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			letters, err := lettersOf(cmd.Context(), c, f)
			if err != nil {
				return err
			}
			if a.quiet {
				ids := make([]string, 0, len(letters))
				for _, l := range letters {
					ids = append(ids, document.DeadLetterID(l))
				}
				return a.ids(ids)
			}
			return a.print(document.NewDeadLetters(letters), func(w io.Writer) error { return a.lettersTable(w, letters) })
		},
	}
	fl := cmd.Flags()
	letterFlags(cmd, &f)
	fl.IntVar(&f.Limit, "limit", 100, "at most `N` dead letters; 0 = all")
	fl.BoolVarP(&a.quiet, "quiet", "q", false, "print ids only: JOB/TASK")
	return cmd
}

// letterFlags are the filters of dead letters.
func letterFlags(cmd *cobra.Command, f *client.LetterFilter) {
	cmd.Flags().StringVar(&f.Job, "job", "", "only those of the `JOB` with this id")
	cmd.Flags().StringVar(&f.Type, "type", "", "only those of this handler `TYPE`, or command or run")
}

// lettersOf lists all dead letters that f lets through.
func lettersOf(ctx context.Context, c *client.Client, f client.LetterFilter) ([]*dtaskv1.DeadLetter, error) {
	if f.Job != "" {
		if _, err := jobID(f.Job); err != nil {
			return nil, err
		}
	}
	var letters []*dtaskv1.DeadLetter
	for l, err := range c.DeadLetters(ctx, f) {
		if err != nil {
			return nil, err
		}
		letters = append(letters, l)
	}
	return letters, nil
}

// lettersTable shows dead letters to people, each in a line.
func (a *app) lettersTable(w io.Writer, letters []*dtaskv1.DeadLetter) error {
	t := show.NewTable(a.paint(w), "ID", "NAME", "TYPE", "ATTEMPTS", "DIED", "ERROR")
	for _, l := range letters {
		t.Row(document.DeadLetterID(l), l.GetJobName(), l.GetType(), fmt.Sprint(l.GetAttempts()), show.Ago(l.GetDiedAt(), a.now()), brief(l.GetError()))
	}
	return t.Write(w)
}

// brief is the first line of an error, or the most that fits into a table.
func brief(text string) string {
	const most = 100
	line := clip(firstLine(text), most)
	if len(line) < len(strings.TrimSpace(text)) {
		line += " …"
	}
	return line
}

func newLettersShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show JOB/TASK",
		Short: "Show a dead letter: its payload, and how each attempt ended",
		Example: `  dtaskctl dlq show 42/fetch
  dtaskctl dlq show 42/fetch -o json`,
		Args: oneArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			job, task, err := taskRef(args[0])
			if err != nil {
				return err
			}
			if task == "" {
				return &usageError{err: fmt.Errorf("%q names no task: %s", args[0], cmd.UseLine()), command: cmd.CommandPath()}
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			letters, err := lettersOf(cmd.Context(), c, client.LetterFilter{Job: job, Task: task, History: true})
			if err != nil {
				return err
			}
			if len(letters) == 0 {
				return &hintedError{
					err:  &client.Error{Kind: client.ErrNotFound, Message: "task " + args[0] + " is no dead letter"},
					hint: "dtaskctl status " + args[0] + " shows how it stands, dtaskctl dlq list the dead letters",
				}
			}
			return a.print(document.NewDeadLetterWithHistory(letters[0]), func(w io.Writer) error { return a.letter(w, letters[0]) })
		},
	}
}

// letter shows a dead letter to people.
func (a *app) letter(w io.Writer, l *dtaskv1.DeadLetter) error {
	paint := a.paint(w)
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s  %s\n", paint.Bold("task "+document.DeadLetterID(l)), paint.State("dead"))
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %-10s %s\n", name, show.Clean(value))
		}
	}
	row("job", l.GetJobName())
	row("owner", l.GetOwner())
	row("type", l.GetType())
	row("died", show.Ago(l.GetDiedAt(), a.now()))
	row("attempts", show.Count(l.GetAttempts()))
	row("payload", string(l.GetPayload()))
	a.history(&b, l.GetHistory())
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// history shows each attempt with the whole of its error, which may have
// several lines.
func (a *app) history(b *bytes.Buffer, history []*dtaskv1.AttemptRecord) {
	for _, r := range history {
		on := ""
		if r.GetWorker() != "" {
			on = " on " + show.Clean(r.GetWorker())
		}
		fmt.Fprintf(b, "\nattempt %d%s", r.GetNumber(), on)
		if r.GetStartedAt() > 0 {
			fmt.Fprintf(b, "  %s  took %s", clock(r.GetStartedAt()), show.Took(r.GetStartedAt(), r.GetEndedAt(), a.now()))
		} else {
			fmt.Fprintf(b, "  ended %s", clock(r.GetEndedAt()))
		}
		b.WriteByte('\n')
		for line := range strings.Lines(strings.TrimSpace(show.CleanText(r.GetError()))) {
			b.WriteString("  " + strings.TrimRight(line, "\n") + "\n")
		}
	}
}

// clock is a moment for people who compare it with logs.
func clock(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05Z") }
