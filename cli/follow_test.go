package cli

import (
	"fmt"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// following returns a follower of job 7, whose logs output serves, and its standard
// output and standard error.
func following(t *testing.T, arrayJob bool, output func(*dtaskv1.LogsRequest, grpc.ServerStreamingServer[dtaskv1.LogsResponse]) error) (f *follower, stdout, stderr fmt.Stringer) {
	t.Helper()
	leader := newFakeLeader()
	leader.jobs["7"] = &fakeJob{job: &dtaskv1.Job{Id: "7"}, output: output}
	c := clientOf(t, leader)
	a, out, errs := setup(t, nil)
	a.format = outputTable
	return newFollower(c, "7", arrayJob, newLockedOutput(a.summaryWriter(), a.err, a.quiet)), out, errs
}

func attemptLine(r *dtaskv1.LogsRequest, s grpc.ServerStreamingServer[dtaskv1.LogsResponse]) error {
	return s.Send(&dtaskv1.LogsResponse{Pieces: []*dtaskv1.LogPiece{{Stream: dtaskv1.LogStream_LOG_STREAM_STDOUT, Data: fmt.Appendf(nil, "attempt %d\n", r.GetAttempt())}}})
}

func TestARepeatedAttemptIsAnnouncedAndReadOnce(t *testing.T) {
	t.Parallel()
	f, stdout, stderr := following(t, false, attemptLine)
	for _, attempt := range []uint32{0, 1, 1, 3, 3, 2} {
		f.observe(t.Context(), &dtaskv1.Task{Id: "run", Attempt: attempt})
		f.readers.Wait()
	}
	if got := stdout.String(); got != "attempt 1\nattempt 3\n" {
		t.Errorf("got %q", got)
	}
	if got := stderr.String(); got != "dtaskctl: task 7/run is repeated: the output of attempt 3 follows\n" {
		t.Errorf("got %q", got)
	}
}

func TestAnAttemptIsReadAfterTheOneBefore(t *testing.T) {
	t.Parallel()
	begun, proceed := make(chan struct{}), make(chan struct{})
	f, stdout, _ := following(t, false, func(r *dtaskv1.LogsRequest, s grpc.ServerStreamingServer[dtaskv1.LogsResponse]) error {
		if r.GetAttempt() == 1 {
			close(begun)
			<-proceed
		}
		return attemptLine(r, s)
	})
	f.observe(t.Context(), &dtaskv1.Task{Id: "run", Attempt: 1})
	<-begun
	f.observe(t.Context(), &dtaskv1.Task{Id: "run", Attempt: 2}) // replaced by the next one
	f.observe(t.Context(), &dtaskv1.Task{Id: "run", Attempt: 3})
	close(proceed)
	f.readers.Wait()
	if got := stdout.String(); got != "attempt 1\nattempt 3\n" {
		t.Errorf("got %q", got)
	}
}

func TestOnlyTheLastAttemptMustHaveAllItsOutput(t *testing.T) {
	t.Parallel()
	f, _, _ := following(t, true, func(r *dtaskv1.LogsRequest, s grpc.ServerStreamingServer[dtaskv1.LogsResponse]) error {
		if r.GetAttempt() == 1 {
			return expiredLog(r, s)
		}
		return attemptLine(r, s)
	})
	observe := func(id string, attempt uint32) error {
		f.observe(t.Context(), &dtaskv1.Task{Id: id, Attempt: attempt})
		f.readers.Wait()
		return f.missing()
	}
	if observe("run[0]", 1) == nil {
		t.Error("got no error after the first attempt")
	}
	if err := observe("run[0]", 2); err != nil {
		t.Errorf("after the second attempt: got %v", err)
	}
}

func TestTheLogsOfALargeArrayAreReadByFewReaders(t *testing.T) {
	t.Parallel()
	const tasks = 3 * maxLogReaders
	var now, most atomic.Int64
	f, stdout, _ := following(t, true, func(r *dtaskv1.LogsRequest, s grpc.ServerStreamingServer[dtaskv1.LogsResponse]) error {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		return attemptLine(r, s)
	})
	for i := range tasks {
		f.observe(t.Context(), &dtaskv1.Task{Id: fmt.Sprintf("run[%03d]", i), Attempt: 1})
	}
	f.readers.Wait()
	if got, want := len(stdout.String()), tasks*len("run[000]: attempt 1\n"); got != want {
		t.Errorf("got %d bytes, want %d", got, want)
	}
	if most.Load() > maxLogReaders {
		t.Errorf("got %d concurrent readers, want at most %d", most.Load(), maxLogReaders)
	}
}
