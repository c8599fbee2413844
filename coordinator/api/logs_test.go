package api

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// readLogs returns all output of a call of Logs.
func (r *replica) readLogs(t *testing.T, req *dtaskv1.LogsRequest) (string, error) {
	t.Helper()
	stream, err := r.jobs.Logs(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for {
		got, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return text, nil
		} else if err != nil {
			return text, err
		}
		text += string(got.GetPieces()[0].GetData())
	}
}

func TestLogsAreReadFromTheWorkerOfTheLastAttempt(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", task("a"))
	w1, w2 := r.worker(t), r.worker(t)
	r.assign(t, held(1, 0, 1, w1))
	r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason { return d.Requeue(held(1, 0, 1, w1), false) })
	r.assign(t, held(1, 0, 2, w2))
	for _, attempt := range []uint32{0, 2} {
		text, err := r.readLogs(t, &dtaskv1.LogsRequest{Job: "1", Task: "a", Attempt: attempt})
		if err != nil || text != "hello\n" {
			t.Errorf("attempt %d: got %q, %v", attempt, text, err)
		}
	}
	for _, got := range r.logs.asked {
		if got != held(1, 0, 2, w2) {
			t.Errorf("got a request for %v", got)
		}
	}
}

func TestTheLogOfAnEarlierAttemptIsReadFromItsWorker(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", task("a"))
	w1, w2 := r.worker(t), r.worker(t)
	r.assign(t, held(1, 0, 1, w1))
	r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason { return d.Requeue(held(1, 0, 1, w1), true) })
	r.complete(t, held(1, 0, 2, w2), "")
	read := func() (string, error) {
		return r.readLogs(t, &dtaskv1.LogsRequest{Job: "1", Task: "a", Attempt: 1})
	}
	if text, err := read(); err != nil || text != "hello\n" || r.logs.asked[0] != held(1, 0, 1, w1) {
		t.Errorf("got %q, %v, from %v", text, err, r.logs.asked)
	}
	r.leader.op(t, &fsm.MarkWorkerDown{ID: w1, Reason: "gone"})
	_, err := read()
	wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	if !strings.Contains(err.Error(), "is down") {
		t.Errorf("got %v", err)
	}
	name := ""
	r.machine.Read(func(st *fsm.State, _ uint64) { name = st.Worker(w1).Name })
	r.leader.op(t, &fsm.RegisterWorker{ID: w1, Name: name, Incarnation: "later", Slots: 1})
	if text, err := read(); err != nil || text != "hello\n" || r.logs.asked[1] != held(1, 0, 1, w1) {
		t.Errorf("after a restart: got %q, %v, from %v", text, err, r.logs.asked)
	}
}

func TestLogsOfUnknownAttemptsAreNotFound(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", task("a"), task("b"))
	w := r.worker(t)
	r.assign(t, held(1, 0, 1, w))
	r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason { return d.Requeue(held(1, 0, 1, w), false) })
	r.assign(t, held(1, 0, 2, w))
	for _, req := range []*dtaskv1.LogsRequest{
		{Job: "x", Task: "a"},
		{Job: "2", Task: "a"},
		{Job: "1", Task: "z"},
		{Job: "1"},
		{Job: "1", Task: "b"},
		{Job: "1", Task: "a", Attempt: 1},
		{Job: "1", Task: "a", Attempt: 3},
	} {
		_, err := r.readLogs(t, req)
		wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	}
	_, err := r.readLogs(t, &dtaskv1.LogsRequest{Job: "1", Task: "a", Stream: 5})
	wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
}

func TestErrorsOfTheLogReaderAreClassified(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *Config) {
		c.Classify = func(err error) *Error {
			if errors.Is(err, errForeign) {
				return &Error{Kind: KindNotFound, Message: "foreign"}
			}
			return nil
		}
	})
	r.submit(t, "x", task("a"))
	r.assign(t, held(1, 0, 1, r.worker(t)))
	r.logs.err = errForeign
	_, err := r.readLogs(t, &dtaskv1.LogsRequest{Job: "1", Task: "a"})
	wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
}

func TestFollowedLogsWaitForTheFirstAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		r.submit(t, "x", task("a"))
		w := r.worker(t)
		go func() {
			time.Sleep(5 * time.Second)
			r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason { return d.Assign(fsm.AssignItem(held(1, 0, 1, w))) })
		}()
		text, err := r.readLogs(t, &dtaskv1.LogsRequest{Job: "1", Task: "a", Follow: true})
		if err != nil || text != "hello\n" {
			t.Errorf("got %q, %v", text, err)
		}
	})
}

func TestAFollowedAttemptMayBeKnownFromAReplicaThatHasAppliedMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		r.submit(t, "x", task("a"))
		w := r.worker(t)
		first := &dtaskv1.LogsRequest{Job: "1", Task: "a", Attempt: 1, Follow: true}
		go func() {
			time.Sleep(time.Second)
			r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason { return d.Assign(fsm.AssignItem(held(1, 0, 1, w))) })
		}()
		text, err := r.readLogs(t, first)
		if err != nil || text != "hello\n" {
			t.Errorf("got %q, %v", text, err)
		}
		_, err = r.readLogs(t, &dtaskv1.LogsRequest{Job: "1", Task: "a", Attempt: 2, Follow: true})
		wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	})
}
