package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// errNotEnded is returned by result for work that goes on.
var errNotEnded = errors.New("has not ended yet")

func newResult(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "result JOB",
		Short: "Print what the last tasks of a job left",
		Long: `Print what the terminal tasks of a job left, those that no other depends on.
Of a single one the result alone is printed. Exit 0 if the job completed, 1 if it
failed or was cancelled, 8 if it has not ended yet.`,
		Example: `  dtaskctl result 42
  dtaskctl result 42 -o json`,
		Args: oneArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := jobID(args[0])
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			got, err := c.Result(cmd.Context(), id)
			if err != nil {
				return err
			}
			ended := client.Ended(got.GetJob().GetState())
			if ended || !a.people() {
				if err := a.print(document.NewResults(got), func(w io.Writer) error { return a.results(w, got) }); err != nil {
					return err
				}
			}
			if !ended {
				return &hintedError{
					err:  fmt.Errorf("job %s %w: %w", id, errNotEnded, errWaited),
					hint: "wait for it with dtaskctl wait " + id,
				}
			}
			return verdict(got.GetJob())
		},
	}
}

// results shows results to people. A single one is printed alone, byte for byte
// unless a terminal would take harm.
func (a *app) results(w io.Writer, got *dtaskv1.GetResultResponse) error {
	if len(got.GetResults()) != 1 {
		t := show.NewTable(a.paint(w), "TASK", "STATE", "RESULT", "OUTPUT", "ERROR")
		for _, r := range got.GetResults() {
			t.Row(r.GetTask(), document.TaskState(r.GetState()), string(r.GetResult()), r.GetOutput(), r.GetError())
		}
		return t.Write(w)
	}
	one := got.GetResults()[0]
	text := string(one.GetResult())
	if text == "" {
		text = one.GetOutput() // the result is the file
	}
	if isTerminal(w) {
		text = show.CleanText(text)
	}
	if text != "" && text[len(text)-1] != '\n' {
		text += "\n"
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}
