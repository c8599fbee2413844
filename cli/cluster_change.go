package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/client"
)

// added is what `cluster add` prints.
type added struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	Voter   bool   `json:"voter"`
}

func newClusterAdd(a *app) *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "add ID HOST:PORT",
		Short: "Let a new coordinator in that waits at an address; it votes once it has caught up",
		Long: `Start the new coordinator first: on an empty folder, under an id that was never
used, and with the members and itself in --peers. It waits until it is added. One
change at a time: while a coordinator is catching up, others wait.`,
		Example: `  dtaskctl cluster add n4 10.0.0.4:7460 --wait`,
		Args:    arguments(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			voter, err := c.AddMember(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			if wait && !voter {
				if err := a.awaitVote(cmd.Context(), c, args[0]); err != nil {
					return err
				}
				voter = true
			}
			return a.print(added{ID: args[0], Address: args[1], Voter: voter}, func(w io.Writer) error {
				text := "added; it votes once it has caught up: see dtaskctl cluster status"
				if voter {
					text = "is a voter"
				}
				_, err := fmt.Fprintf(w, "%s %s\n", args[0], text)
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until it votes, for at most --timeout")
	return cmd
}

// awaitVote waits until a coordinator votes.
func (a *app) awaitVote(ctx context.Context, c *client.Client, id string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, a.timeout, &client.Error{Kind: client.ErrUnreachable, Message: id + " was added and has no vote yet: see dtaskctl cluster status"})
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if status, err := c.ClusterStatus(ctx); err == nil {
			for _, m := range status.GetMembers() {
				if m.GetId() == id && m.GetVoter() {
					return nil
				}
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// removed is what `cluster remove` prints.
type removed struct {
	ID      string `json:"id"`
	Already bool   `json:"already"`
}

func newClusterRemove(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "remove ID",
		Short: "Remove a coordinator for good, dead or alive; its id is never used again",
		Long: `Refused if the voters that are left and answer would be no majority: then nothing
could be stored any more, and there would be no way back by a command. A removed
coordinator ends by itself, at the latest when it is started again.`,
		Example: `  dtaskctl cluster remove n2`,
		Args:    oneArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			already, err := c.RemoveMember(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.print(removed{ID: args[0], Already: already}, func(w io.Writer) error {
				verb := "removed"
				if already {
					verb = "was removed before"
				}
				_, err := fmt.Fprintf(w, "%s %s\n", args[0], verb)
				return err
			})
		},
	}
}

// transferred is what `cluster transfer-leader` prints.
type transferred struct {
	Leader string `json:"leader"`
}

func newClusterTransfer(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "transfer-leader [ID]",
		Short:   "Hand leadership to another coordinator, to the one with the longest log if none is named",
		Example: `  dtaskctl cluster transfer-leader n3`,
		Args:    arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			id := ""
			if len(args) == 1 {
				id = args[0]
			}
			if err := c.TransferLeadership(cmd.Context(), id); err != nil {
				return err
			}
			if status, err := c.ClusterStatus(cmd.Context()); err == nil {
				id = status.GetLeader()
			}
			return a.print(transferred{Leader: id}, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "leadership handed over; the leader is now %s\n", id)
				return err
			})
		},
	}
}

// arguments wants from least to most arguments.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fmt.Errorf("an argument is missing: %s", cmd.UseLine())
		case len(args) > most:
			return fmt.Errorf("unexpected argument %q: %s", args[most], cmd.UseLine())
		}
		return nil
	}
}
