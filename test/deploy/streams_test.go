//go:build linux

package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// A stream is a call that stays open until the cluster ends it.
type stream struct {
	what  string
	codes []codes.Code  // with which it may end
	ready chan struct{} // closed when the cluster has answered for the first time
	ended chan error    // gets one error
	at    time.Time     // of the end; may be read after ended
}

// streams opens calls for one credential. Each has a goroutine, which ends with it.
type streams struct {
	t       *testing.T
	ctx     context.Context // of the test
	running sync.WaitGroup
	list    []*stream
}

func newStreams(t *testing.T) *streams {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &streams{t: t, ctx: ctx}
	t.Cleanup(func() {
		cancel()
		s.running.Wait()
	})
	return s
}

// open notes a call. receive is called until it fails; the first success shows that the
// call is open.
func (s *streams) open(what string, receive func() error, wanted ...codes.Code) {
	opened := &stream{what: what, codes: wanted, ready: make(chan struct{}), ended: make(chan error, 1)}
	s.list = append(s.list, opened)
	s.running.Go(func() {
		err := receive()
		if err == nil {
			close(opened.ready)
		}
		for err == nil {
			err = receive()
		}
		opened.at = time.Now()
		opened.ended <- fmt.Errorf("%s: %w", what, err)
	})
}

// awaitReady returns when the cluster has answered all calls.
func (s *streams) awaitReady() error {
	for _, x := range s.list {
		select {
		case <-x.ready:
		case err := <-x.ended:
			return fmt.Errorf("not opened: %w", err)
		case <-time.After(guard):
			return fmt.Errorf("%s: no answer", x.what)
		}
	}
	return nil
}

// awaitEnd returns how long after a time each call ended, because the credential does not
// count any more.
func (s *streams) awaitEnd(from time.Time) (took []time.Duration, err error) {
	for _, x := range s.list {
		select {
		case end := <-x.ended:
			if !slices.Contains(x.codes, status.Code(errors.Unwrap(end))) {
				err = errors.Join(err, fmt.Errorf("%w, want one of %v", end, x.codes))
			}
			took = append(took, x.at.Sub(from))
		case <-time.After(guard):
			err = errors.Join(err, fmt.Errorf("%s continues", x.what))
		}
	}
	return took, err
}

// connect connects the test to one coordinator, with a worker's certificate or without.
func (s *site) connect(coordinator string, certificate string) *grpc.ClientConn {
	s.t.Helper()
	trust, err := tlsconf.ReadTrust(filepath.Join(s.machines["m1"].data(), "tls", "ca.crt"))
	clustertest.Must(s.t, err)
	config := trust.Config(nil, nil)
	if certificate != "" {
		pair, err := tlsconf.OpenWorkerKey(certificate)
		clustertest.Must(s.t, err)
		config = trust.Config(&pair, nil)
	}
	conn, err := grpc.NewClient("passthrough:///"+coordinator+":7460", grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return s.machines["you"].dial(ctx, address)
		}))
	clustertest.Must(s.t, err)
	s.t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return conn
}

// openAll opens every kind of call that a coordinator serves a token: watches and waits on
// all, and on the leader also a wait for all of the jobs, a log of the last one and an upload.
func (s *streams) openAll(conns map[string]*grpc.ClientConn, leader string, token auth.Secret, list []string) error {
	job := list[len(list)-1]
	parsed, err := auth.ParseToken(token.Reveal())
	if err != nil {
		return err
	}
	ctx := metadata.AppendToOutgoingContext(s.ctx, "authorization", parsed.Header())
	for name, conn := range conns {
		if err := s.openReads(ctx, dtaskv1.NewJobServiceClient(conn), name, job); err != nil {
			return err
		}
	}
	jobs := dtaskv1.NewJobServiceClient(conns[leader])
	if err := s.openWait(ctx, jobs, fmt.Sprintf("wait for %d jobs on %s", len(list), leader), list); err != nil {
		return err
	}
	log, err := jobs.Logs(ctx, &dtaskv1.LogsRequest{Job: job, Task: "held", Follow: true})
	if err != nil {
		return err
	}
	s.open("log on "+leader, func() error { _, err := log.Recv(); return err }, codes.Unauthenticated)
	return s.upload(ctx, jobs, "upload on "+leader)
}

// openReads opens the calls that any coordinator answers, once it knows the token.
func (s *streams) openReads(ctx context.Context, jobs dtaskv1.JobServiceClient, name, job string) error {
	const stale = dtaskv1.Consistency_CONSISTENCY_STALE
	err := cluster.Until(ctx, name+" knows the token", guard, func(ctx context.Context) error {
		_, err := jobs.GetJob(ctx, &dtaskv1.GetJobRequest{Id: job, Consistency: stale})
		return err
	})
	if err != nil {
		return err
	}
	watch, err := jobs.WatchJob(ctx, &dtaskv1.WatchJobRequest{Id: job, Consistency: stale})
	if err != nil {
		return err
	}
	s.open("watch on "+name, func() error { _, err := watch.Recv(); return err }, codes.Unauthenticated)
	return s.openWait(ctx, jobs, "wait on "+name, []string{job})
}

// openWait waits for jobs that do not end. The first answer shows that the coordinator waits
// for all of them.
func (s *streams) openWait(ctx context.Context, jobs dtaskv1.JobServiceClient, what string, list []string) error {
	wait, err := jobs.WaitJobs(ctx, &dtaskv1.WaitJobsRequest{Jobs: list, Consistency: dtaskv1.Consistency_CONSISTENCY_STALE})
	if err != nil {
		return err
	}
	s.open(what, func() error {
		m, err := wait.Recv()
		if err == nil && int(m.GetRemaining()) != len(list) {
			return fmt.Errorf("%d jobs remain, want %d", m.GetRemaining(), len(list))
		}
		return err
	}, codes.Unauthenticated)
	return nil
}

// uploaded is the name of jobs whose upload does not end.
const uploaded = "cut-off"

// upload submits a small job, and then sends the tasks of a job of a million, until the
// stream ends.
func (s *streams) upload(ctx context.Context, jobs dtaskv1.JobServiceClient, what string) error {
	small, err := spec.Parse("small", []byte("version: 1\njob: {name: "+uploaded+"-small, tasks: [{id: a, type: noop}]}"), spec.Options{})
	if err != nil {
		return err
	}
	up, err := jobs.Submit(ctx)
	if err != nil {
		return err
	}
	err = up.Send(&dtaskv1.SubmitRequest{Parts: []*dtaskv1.JobPart{{
		Job: 1, Header: small.GetHeader(), IdempotencyKey: auth.NewToken().ID(), Total: 1, Tasks: small.GetTasks(),
	}}})
	if err != nil {
		return err
	}
	s.open(what, func() error {
		m, err := up.Recv()
		if err != nil {
			return err
		}
		if reason := m.GetResults()[0].GetMessage(); reason != "" {
			return fmt.Errorf("the small job was refused: %s", reason)
		}
		s.running.Go(func() { sendTasks(ctx, up, small) })
		return nil
	}, codes.Unauthenticated)
	return nil
}

// sendTasks sends a thousand tasks of a job of a million every 20 ms, until the stream
// ends.
func sendTasks(ctx context.Context, up grpc.BidiStreamingClient[dtaskv1.SubmitRequest, dtaskv1.SubmitResponse], like *dtaskv1.JobSpec) {
	const total, each = 1_000_000, 1000
	header := proto.CloneOf(like.GetHeader())
	header.Name = uploaded
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for sent := 0; sent < total-each; sent += each {
		part := &dtaskv1.JobPart{Job: 2, More: true}
		if sent == 0 {
			part.Header, part.IdempotencyKey, part.Total = header, auth.NewToken().ID(), total
		}
		for i := range each {
			part.Tasks = append(part.Tasks, &dtaskv1.TaskSpec{Id: fmt.Sprintf("t%d", sent+i), Body: like.GetTasks()[0].GetBody()})
		}
		if err := up.Send(&dtaskv1.SubmitRequest{Parts: []*dtaskv1.JobPart{part}}); err != nil { // io.EOF: it has ended
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// openSession opens a session of a worker on the leader. The leader ends it when it fences
// the worker, and every coordinator ends the stream when the identity is revoked: either may
// be first.
func (s *streams) openSession(conn *grpc.ClientConn, name, clusterID string) {
	s.t.Helper()
	session, err := dtaskv1.NewWorkerServiceClient(conn).Sessions(s.ctx)
	clustertest.Must(s.t, err)
	hello := &dtaskv1.SessionRequest{
		Fence: &dtaskv1.Fence{ClusterId: clusterID}, Heartbeat: 1,
		Hello: &dtaskv1.Hello{Name: name, Incarnation: clusterID, NextReport: 1, Version: "test", Types: []string{"none"}},
	}
	clustertest.Must(s.t, session.Send(&dtaskv1.SessionsRequest{Frames: []*dtaskv1.RequestFrame{{Session: 1, Message: hello}}}))
	s.open("session of "+name, func() error {
		m, err := session.Recv()
		if errors.Is(err, io.EOF) {
			return errors.New("the stream ended without a reason")
		}
		if err != nil {
			return err
		}
		for _, frame := range m.GetFrames() {
			if end := frame.GetEnd(); end != nil {
				return status.Error(codes.Code(end.GetCode()), end.GetMessage())
			}
		}
		return nil
	}, codes.PermissionDenied, codes.Unauthenticated)
}
