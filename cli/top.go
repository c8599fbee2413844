package cli

import (
	"bytes"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// topInterval is the time between two screens of dtaskctl top.
const topInterval = time.Second

// Control sequences of a terminal: the cursor goes to the first line; the rest of a line,
// and of the screen, is erased.
const (
	cursorHome  = "\x1b[H"
	eraseLine   = "\x1b[K\n"
	eraseScreen = "\x1b[J"
)

func newTop(a *app) *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show rates, latencies, queues and workers, live",
		Long: `Show how many jobs and tasks the cluster takes and completes per second, how long tasks
wait until they are sent to a worker and how long they run, the ready tasks and the workers.
If there are queues besides default, or that one has settings, the ten in which most tasks
wait and run are shown as in dtaskctl queue list; the leader counts them every five seconds.
On a terminal it is refreshed each second until you press Ctrl-C; otherwise, with --once or
with -o json, it is printed once.

The leader knows the last minute, five minutes and hour of its own term. Latencies are at
most 13 % too high.`,
		Example: `  dtaskctl top
  dtaskctl top --once
  dtaskctl top -o json`,
		Args: noArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			if !once && a.textOutput() && isTerminal(a.out) {
				return view{}, a.refresh(ctx, c)
			}
			load, err := c.Load(ctx)
			if err != nil {
				return view{}, err
			}
			return view{doc: document.NewLoad(load), text: func(p *show.Printer) { p.Load(load, nil) }}, nil
		}),
	}
	cmd.Flags().BoolVar(&once, "once", false, "print once, also on a terminal")
	return cmd
}

// refresh shows the load until ctx is done, and then returns nil.
func (a *app) refresh(ctx context.Context, c *client.Client) error {
	if err := a.write([]byte(cursorHome+eraseScreen), nil); err != nil {
		return err
	}
	tick := time.NewTicker(topInterval)
	defer tick.Stop()
	for before := (*dtaskv1.LoadResponse)(nil); ; {
		load, err := c.Load(ctx)
		if ctx.Err() != nil {
			return nil // Ctrl-C is the usual end
		}
		if err != nil {
			return err
		}
		if err := a.write(a.screen(load, before), nil); err != nil {
			return err
		}
		before = load
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// screen is one screen, which overwrites the one before.
func (a *app) screen(load, before *dtaskv1.LoadResponse) []byte {
	p := show.NewPrinter(a.colored(a.out), a.now())
	p.Load(load, before)
	p.Line("")
	p.Line("Ctrl-C ends.")
	text := bytes.ReplaceAll(p.Bytes(), []byte("\n"), []byte(eraseLine))
	return append(append([]byte(cursorHome), text...), eraseScreen...)
}
