package transport

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// snapshotRetryLimit is how long the transfer of one snapshot is retried. Raft counts
	// one failure then, and continues with its newest snapshot.
	snapshotRetryLimit = 5 * time.Minute
	// maxSnapshotRetryDelay bounds the delay between two tries.
	maxSnapshotRetryDelay = time.Second
)

// InstallSnapshot implements raft.Transport. It retries a transfer that fails because
// the peer cannot be reached or the connection breaks, until it succeeds, the term ends
// or snapshotRetryLimit has passed: raft delays a request by up to ten seconds after
// failures, as sendWithRetry explains. What the peer itself reports, such as a full
// disk, is left to raft and its delays.
//
// Each try reads the snapshot from its start, so the content must be an io.Seeker; any
// other is sent once.
func (t *Transport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, content io.Reader) error {
	limit := time.After(t.timeScale.Scale(snapshotRetryLimit))
	for {
		if !t.maySend(args.Term, id) {
			return errDeposed
		}
		began := time.Now()
		err := t.install(id, target, args, resp, content)
		seeker, rewinds := content.(io.Seeker)
		if err == nil || !rewinds || !isNetworkError(err) {
			return err
		}
		select {
		case <-time.After(snapshotRetryDelay(time.Since(began), t.timeScale.Scale(retryInterval), t.timeScale.Scale(maxSnapshotRetryDelay))):
		case <-limit:
			return err
		case <-t.closed:
			return err
		}
		if _, err := seeker.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("reading the snapshot again: %w", err)
		}
		*resp = raft.InstallSnapshotResponse{}
	}
}

// snapshotRetryDelay returns the delay after a try that took a time. A refused
// connection takes no time and is retried soon. After a transfer that broke, the delay
// is as long as the transfer was: a peer that breaks each of them causes half the load.
func snapshotRetryDelay(took, least, most time.Duration) time.Duration {
	return min(max(took, least), most)
}

// isNetworkError reports whether a request failed before the peer answered it.
func isNetworkError(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || isConnectionClosed(err)
}
