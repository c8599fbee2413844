package transport

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// snapshotPeer is a peer that returns after a time, breaks the first transfers, and then
// takes what it is sent.
type snapshotPeer struct {
	returns time.Time
	breaks  int
	report  error // what it reports once it has returned
	tries   int
	got     []byte
}

func (p *snapshotPeer) install(_ raft.ServerID, _ raft.ServerAddress, _ *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, content io.Reader) error {
	p.tries++
	switch {
	case time.Now().Before(p.returns):
		return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	case p.report != nil:
		return p.report
	case p.breaks > 0:
		p.breaks--
		_, _ = io.CopyN(io.Discard, content, 4)
		time.Sleep(300 * time.Millisecond) // in the bubble: how long the transfer took
		return io.ErrUnexpectedEOF
	}
	var err error
	p.got, err = io.ReadAll(content)
	resp.Success = true
	return err
}

func TestAReturningReplicaReceivesTheWholeSnapshotImmediately(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _ := newLonely(0, 3)
		back := time.Now().Add(time.Minute)
		peer := &snapshotPeer{returns: back, breaks: 1}
		p.install = peer.install
		var resp raft.InstallSnapshotResponse
		err := p.InstallSnapshot("n2", "", &raft.InstallSnapshotRequest{Term: 3}, &resp, bytes.NewReader([]byte("a snapshot")))
		if err != nil || !resp.Success || string(peer.got) != "a snapshot" {
			t.Errorf("the peer got %q, %+v, %v", peer.got, resp, err)
		}
		if late := time.Since(back); late > 600*time.Millisecond+retryInterval {
			t.Errorf("a peer that was down for a minute, and broke one transfer, had the snapshot after %v", late)
		}
	})
}

func TestSnapshotRetriesEnd(t *testing.T) {
	t.Parallel()
	report := errors.New("no space left on device")
	for name, x := range map[string]struct {
		peer    snapshotPeer
		content io.Reader
		deposed time.Duration
		closed  time.Duration
		want    error
		after   time.Duration
	}{
		"at the limit":                   {want: syscall.ECONNREFUSED, after: snapshotRetryLimit},
		"with the term":                  {deposed: 3 * retryInterval / 2, want: errDeposed, after: 2 * retryInterval},
		"when the transport is closed":   {closed: time.Second + 1, want: syscall.ECONNREFUSED, after: time.Second + 1},
		"when the peer reports an error": {peer: snapshotPeer{returns: time.Unix(0, 0), report: report}, want: report},
		"if the content cannot be reread": {
			peer: snapshotPeer{returns: time.Unix(0, 0), breaks: 9}, content: io.MultiReader(bytes.NewReader([]byte("a snapshot"))),
			want: io.ErrUnexpectedEOF, after: 300 * time.Millisecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, _ := newLonely(0, 3)
				began := time.Now()
				if x.peer.returns.IsZero() {
					x.peer.returns = began.Add(time.Hour)
				}
				if x.content == nil {
					x.content = bytes.NewReader([]byte("a snapshot"))
				}
				p.install = x.peer.install
				if x.deposed > 0 {
					time.AfterFunc(x.deposed, func() { p.RaftStarted(func(uint64, raft.ServerID) bool { return false }) })
				}
				if x.closed > 0 {
					time.AfterFunc(x.closed, func() { p.once.Do(func() { close(p.closed) }) })
				}
				err := p.InstallSnapshot("n2", "", &raft.InstallSnapshotRequest{Term: 3}, new(raft.InstallSnapshotResponse), x.content)
				if took := time.Since(began); !errors.Is(err, x.want) || took != x.after {
					t.Errorf("returned after %v with %v (%d tries), want %v after %v", took, err, x.peer.tries, x.want, x.after)
				}
			})
		})
	}
}
