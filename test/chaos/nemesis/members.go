package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/test/cluster"
)

// memberFaults change who leads and who votes.
func memberFaults() []fault {
	return []fault{
		{"F58", "voter-comes-and-goes", comesAndGoes},
		{"F61", "transfer-storm", transferStorm},
	}
}

// changeLimit is how long a membership change may take. It is a guard: the change
// needs a leader and a majority that answers, which other faults may prevent.
const changeLimit = 10 * time.Minute

// comesAndGoes adds a replica with a new name, which votes for a time, and removes it
// again.
func comesAndGoes(ctx context.Context, w *World, hold time.Duration) error {
	release, err := w.Take("members", Members)
	if err != nil {
		return err
	}
	defer release()
	n, err := w.Cluster.Newcomer(ctx, w.newcomer(), "--auto-rejoin=false")
	if err != nil {
		return fmt.Errorf("adding replica: %w", err)
	}
	if err := n.Start(ctx); err != nil {
		return fmt.Errorf("adding replica: %w", err)
	}
	votes := w.change(ctx, n.Name+" votes", func(ctx context.Context) error {
		if err := Ensure(context.WithoutCancel(ctx), n.Process); err != nil {
			return err // it had exited by itself
		}
		voter, err := w.status.AddMember(ctx, n.Name, n.Addr)
		if err == nil && !voter {
			err = cluster.ErrNotYet
		}
		return err
	})
	if votes == nil {
		pauseOr(ctx, hold)
	}
	// Whether or not it votes, it may be a member, and may lead.
	gone := w.change(ctx, n.Name+" is removed", func(ctx context.Context) error {
		if err := Ensure(context.WithoutCancel(ctx), n.Process); err != nil {
			return err
		}
		_, err := w.status.RemoveMember(ctx, n.Name)
		if errors.Is(err, client.ErrNotFound) {
			return nil // it never was a member
		}
		return err
	})
	return errors.Join(votes, gone, n.Kill(), os.RemoveAll(n.DataDir))
}

// newcomer returns a name that was never used.
func (w *World) newcomer() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.newcomers++
	return fmt.Sprintf("x%d", w.newcomers)
}

// change repeats a membership change until it is done, also when ctx is done: an
// unfinished change would remain.
func (w *World) change(ctx context.Context, what string, do func(context.Context) error) error {
	return cluster.Until(context.WithoutCancel(ctx), what, changeLimit, do) //nolint:wrapcheck // the error is complete
}

// transferStorm transfers leadership repeatedly.
func transferStorm(ctx context.Context, w *World, hold time.Duration) error {
	release, err := w.Take("transfers", "transfers")
	if err != nil {
		return err
	}
	defer release()
	done := 0
	err = repeat(ctx, max(hold, 2*time.Second), 200*time.Millisecond, func() error {
		if w.status.TransferLeadership(ctx, "") == nil {
			done++
		}
		return nil
	})
	if err == nil && done < 2 {
		err = fmt.Errorf("leadership was transferred %d times: %w", done, ErrCannot)
	}
	return err
}
