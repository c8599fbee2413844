package worker

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// What the leader sends is on disk before the worker says that it has it.
func TestAWorkerStoresTheCAsOfItsClusterAndReportsThem(t *testing.T) {
	t.Parallel()
	n, dir := newRealNetwork(t), t.TempDir()
	defer n.stopAll()
	j := n.listenTLS(t, "n1:1")
	b := member(t, n, Config{JoinString: joinString(t, j.ca, cluster), Name: "w1", WorkDir: dir})
	l := <-j.sessions
	first, next := tlsconf.BundleHash(j.ca.Roots), newTestCA(t)
	if !bytes.Equal(l.hello.GetTrust(), first[:]) {
		t.Errorf("it reports %x, want %x", l.hello.GetTrust(), first)
	}
	l.welcome(t, 1)
	both := slices.Concat(next.Roots, j.ca.Roots)
	l.send(t, &dtaskv1.SessionResponse{Trust: &dtaskv1.Trust{Roots: tlsconf.BundleDER(both), Addresses: []string{"n1:1", "n2:1"}}})
	want := tlsconf.BundleHash(both)
	l.next(t, "the hash of both CAs", func(m *dtaskv1.SessionRequest) bool { return bytes.Equal(m.GetTrust(), want[:]) })
	kept, err := os.ReadFile(filepath.Join(dir, membershipFile)) //nolint:gosec // a file of this test
	if err != nil || strings.Count(string(kept), "BEGIN CERTIFICATE") != 2 || !strings.Contains(string(kept), "n2:1") {
		t.Errorf("stored %s, %v", kept, err)
	}
	b.drain()
	if err := <-b.done; err != nil {
		t.Error(err)
	}
}

// The session ends with its connection, and what the worker runs continues. The coordinator was
// the leader, so that the worker tries no other one.
func TestAWorkerConnectsAgainWhenTheCAOfItsConnectionIsDropped(t *testing.T) {
	t.Parallel()
	n := newRealNetwork(t)
	defer n.stopAll()
	j := n.listenTLS(t, "n1:1")
	// The worker may ask it for the successor of a leader that answers late, but opens no
	// session with it.
	follower := n.listenTLS(t, "n2:1")
	follower.cert.Store(j.cert.Load())
	follower.answer = func() error {
		return refused(codes.FailedPrecondition, &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER, LeaderAddress: "n1:1"})
	}
	join := j.join
	j.join = func(r *dtaskv1.JoinRequest) (*dtaskv1.JoinResponse, error) {
		resp, err := join(r)
		resp.Addresses = append(resp.Addresses, "n2:1")
		return resp, err
	}
	started, finish := make(chan struct{}), make(chan struct{})
	b := member(t, n, Config{JoinString: joinString(t, j.ca, cluster), Name: "w1", WorkDir: t.TempDir()}, func(w *Worker) {
		w.Handle("wait", func(ctx context.Context, _ *Task) ([]byte, error) {
			close(started)
			select {
			case <-finish:
				return nil, nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		})
	})
	l := (<-j.sessions).welcome(t, 1)
	l.assign(t, work{typ: "wait"})
	<-started
	next := newTestCA(t)
	both := slices.Concat(next.Roots, j.ca.Roots)
	l.send(t, &dtaskv1.SessionResponse{Trust: &dtaskv1.Trust{Roots: tlsconf.BundleDER(both)}})
	want := tlsconf.BundleHash(both)
	l.next(t, "the hash of both CAs", func(m *dtaskv1.SessionRequest) bool { return bytes.Equal(m.GetTrust(), want[:]) })
	j.certify(t, next, time.Now())
	follower.cert.Store(j.cert.Load())
	l.send(t, &dtaskv1.SessionResponse{Trust: &dtaskv1.Trust{Roots: tlsconf.BundleDER(next.Roots)}})
	go l.serveTillEnd(t)

	l = <-j.sessions
	if want := tlsconf.BundleHash(next.Roots); !bytes.Equal(l.hello.GetTrust(), want[:]) {
		t.Errorf("it trusts %x, want %x", l.hello.GetTrust(), want)
	}
	if n := follower.streams.Load(); n != 0 {
		t.Errorf("it opened %d sessions with another coordinator", n)
	}
	if held := l.hello.GetHello().GetHeld(); len(held) != 1 {
		t.Errorf("it holds %v, want the attempt that it runs", held)
	}
	close(finish)
	l.welcome(t, 1)
	b.drain()
	go l.serveTillEnd(t)
	if err := <-b.done; err != nil {
		t.Error(err)
	}
}

// While both CAs count, a worker connects again in time, and confirms the new one only then: the
// old one is not dropped before, so that no worker has to connect again at that moment.
func TestAWorkerConfirmsANewCAOnceItsConnectionNeedsNoOther(t *testing.T) {
	t.Parallel()
	n := newRealNetwork(t)
	defer n.stopAll()
	j := n.listenTLS(t, "n1:1")
	b := member(t, n, Config{JoinString: joinString(t, j.ca, cluster), Name: "w1", WorkDir: t.TempDir()})
	l := (<-j.sessions).welcome(t, 1)
	next := newTestCA(t)
	both := slices.Concat(next.Roots, j.ca.Roots)
	want := tlsconf.BundleHash(both)
	trust := &dtaskv1.SessionResponse{Trust: &dtaskv1.Trust{Roots: tlsconf.BundleDER(both), ReconnectWithinMs: 100}}
	j.certify(t, next, time.Now())
	l.send(t, trust)
	go l.serveTillEnd(t)
	l = <-j.sessions
	if got := l.hello.GetTrust(); !bytes.Equal(got, want[:]) {
		t.Errorf("it confirms %x, want %x", got, want)
	}
	l.welcome(t, 1)
	trust.Trust.Roots = tlsconf.BundleDER(next.Roots) // the old one is dropped, and the connection stays
	trust.Trust.ReconnectWithinMs = 0
	l.send(t, trust)
	want = tlsconf.BundleHash(next.Roots)
	l.next(t, "the hash of the new CA", func(m *dtaskv1.SessionRequest) bool { return bytes.Equal(m.GetTrust(), want[:]) })
	b.drain()
	go l.serveTillEnd(t)
	if err := <-b.done; err != nil {
		t.Error(err)
	}
}

// A worker that has an hour to connect again does not confirm meanwhile, and ends without delay.
func TestAWorkerThatWillConnectAgainConfirmsNothing(t *testing.T) {
	t.Parallel()
	n := newRealNetwork(t)
	defer n.stopAll()
	j := n.listenTLS(t, "n1:1")
	b := member(t, n, Config{JoinString: joinString(t, j.ca, cluster), Name: "w1", WorkDir: t.TempDir()})
	l := <-j.sessions
	l.term = 1
	l.send(t, &dtaskv1.SessionResponse{Heartbeat: 1, Welcome: &dtaskv1.Welcome{WorkerId: 1, HeartbeatIntervalMs: 20, LivenessTimeoutMs: 60_000, LeaseMs: 60_000}})
	both := slices.Concat(newTestCA(t).Roots, j.ca.Roots)
	l.send(t, &dtaskv1.SessionResponse{Trust: &dtaskv1.Trust{Roots: tlsconf.BundleDER(both), ReconnectWithinMs: time.Hour.Milliseconds()}})
	want := tlsconf.BundleHash(both)
	for range maxReconnectDelay/(20*time.Millisecond) + 5 {
		if m := l.heartbeat(t); bytes.Equal(m.GetTrust(), want[:]) {
			t.Fatal("it confirms CAs while its connection depends on the old one")
		}
	}
	b.drain()
	go l.serveTillEnd(t)
	if err := <-b.done; err != nil {
		t.Error(err)
	}
}
