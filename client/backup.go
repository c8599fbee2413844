package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/grpc/status"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxBackupBreaks is how many streams of a backup may break before it fails: each one
// starts from the beginning.
const maxBackupBreaks = 5

// BackupOptions select what a backup has.
type BackupOptions struct {
	History bool // also the finished jobs that have left the state
	// HistoryAfter leaves out the jobs that left the state up to this log index, which is
	// that of an earlier backup.
	HistoryAfter uint64
}

// Backup writes a backup of the cluster, as it is after everything that was acknowledged
// before the call. It prefers a follower, so that the leader does little for it. begin is
// called for each attempt, and returns where that one is written from its beginning; an
// error of begin or of the writer is returned.
func (c *Client) Backup(ctx context.Context, o BackupOptions, begin func() (io.Writer, error)) error {
	breaks := 0
	return c.do(ctx, operation{
		name: "saving a backup", stale: true, first: c.followers(ctx),
		run: func(ctx context.Context, t try) error {
			stream, err := t.admin().Backup(ctx, &dtaskv1.BackupRequest{WithHistory: o.History, HistoryAfter: o.HistoryAfter})
			if err != nil {
				return err
			}
			var to io.Writer
			for {
				got, err := stream.Recv()
				switch {
				case errors.Is(err, io.EOF) && to != nil:
					return nil
				case errors.Is(err, io.EOF):
					return errCut
				case err != nil && to != nil:
					if breaks++; breaks == maxBackupBreaks {
						return &Error{Kind: ErrUnreachable, Message: fmt.Sprintf("the connection broke %d times: %s", breaks, plain(status.Convert(err).Message()))}
					}
					return err
				case err != nil:
					return err
				}
				t.connected()
				if to == nil {
					if to, err = begin(); err != nil {
						return err
					}
				}
				if _, err := to.Write(got.GetData()); err != nil {
					return err
				}
			}
		},
	})
}

// followers returns the addresses of voters that don't lead, those with the least lag
// first; none if they are unknown, or if this client may only use the socket of one
// machine.
func (c *Client) followers(ctx context.Context) (addrs []string) {
	if slices.ContainsFunc(c.book.order(), c.isLocalOnly) {
		return nil
	}
	found, err := c.ClusterStatus(ctx)
	if err != nil {
		return nil // the call itself reports it
	}
	members := slices.SortedStableFunc(slices.Values(found.GetMembers()), func(a, b *dtaskv1.Member) int { return cmp.Compare(a.GetLag(), b.GetLag()) })
	for _, m := range members {
		if m.GetState() == "follower" && m.GetVoter() {
			addrs = append(addrs, m.GetAddress())
		}
	}
	return addrs
}
