package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

const (
	// maxKey bounds an idempotency key, in bytes.
	maxKey = 128
	// taskCost is what a task costs while its job is received, beside its
	// encoded form: mostly its id among those that must be unique.
	taskCost = 160
	// uploadRetry is the pause for those who find no room for their submission.
	uploadRetry = 200 * time.Millisecond
)

type submitStream = grpc.ClientStreamingServer[dtaskv1.SubmitRequest, dtaskv1.SubmitResponse]

// Submit implements JobService.
func (j *jobs) Submit(stream submitStream) error {
	leader := j.cfg.Leader()
	if leader == nil {
		return errNotLeader // before a byte of the job was read
	}
	u := &upload{Server: j.Server}
	defer u.release()
	for {
		m, err := u.next(stream)
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if j.cfg.Leader() != leader {
			return errNotLeader
		}
		if err := u.add(m); err != nil {
			return err
		}
	}
	submission, err := u.seal()
	if err != nil {
		return err
	}
	stored, err := leader.Submit(stream.Context(), submission)
	if err != nil {
		return fmt.Errorf("storing the job: %w", err)
	}
	return stream.SendAndClose(&dtaskv1.SubmitResponse{
		Id: strconv.FormatUint(uint64(stored.ID), 10), Existed: stored.Existed, Index: stored.Index,
	})
}

// upload is a submission that is being received. It is used by one call.
type upload struct {
	*Server
	held    int64 // bytes of Server.uploads
	begun   bool
	checker *spec.Checker
	encoder jobEncoder
}

// next receives a message. The memory of a whole one is set aside before it is
// read, and what it really takes is kept after.
func (u *upload) next(stream submitStream) (*dtaskv1.SubmitRequest, error) {
	if err := u.take(maxMessage); err != nil {
		return nil, err
	}
	m, err := receive(stream, u.cfg.UploadPause)
	if err != nil {
		return nil, err
	}
	size := proto.Size(m)
	if size > maxMessage {
		return nil, invalid("message: has %d bytes; send at most %d, and the rest of the tasks in further ones", size, maxMessage)
	}
	cost := int64(size + len(m.GetTasks())*taskCost)
	if cost > maxMessage {
		return m, u.take(cost - maxMessage)
	}
	u.uploads.Release(maxMessage - cost)
	u.held -= maxMessage - cost
	return m, nil
}

func (u *upload) take(n int64) error {
	if !u.uploads.TryAcquire(n) {
		return &Error{Kind: KindBusy, Message: "too many submissions are being received", RetryAfter: uploadRetry}
	}
	u.held += n
	return nil
}

func (u *upload) release() { u.uploads.Release(u.held) }

// receive waits for a message for at most a pause. Nothing but the end of the
// call makes Recv return, so that the goroutine that waits in it is not waited
// for here: it touches the stream and its channel, and the end of the call ends
// it.
func receive(stream submitStream, pause time.Duration) (*dtaskv1.SubmitRequest, error) {
	type received struct {
		m   *dtaskv1.SubmitRequest
		err error
	}
	got := make(chan received, 1) // size 1: the call may have ended
	go func() {
		m, err := stream.Recv()
		got <- received{m, err}
	}()
	limit := time.NewTimer(pause)
	defer limit.Stop()
	select {
	case r := <-got:
		return r.m, r.err
	case <-stream.Context().Done():
		return nil, context.Cause(stream.Context())
	case <-limit.C:
		// Definite: whoever was held up may begin again.
		return nil, &Error{Kind: KindBusy, Message: fmt.Sprintf("no message came for %s; a submission is sent without pauses", pause)}
	}
}

// add checks and encodes the tasks of a message.
func (u *upload) add(m *dtaskv1.SubmitRequest) error {
	if !u.begun {
		if err := u.begin(m); err != nil {
			return err
		}
	} else if m.GetHeader() != nil || m.GetIdempotencyKey() != "" || m.GetTotal() != 0 || m.GetGeneratedKey() {
		return invalid("header, idempotency_key, generated_key, total: are in the first message only")
	}
	if total := u.encoder.s.Total; uint64(u.encoder.count)+uint64(len(m.GetTasks())) > uint64(total) {
		return invalid("total: %d were announced, and more came; announce as many as are sent", total)
	}
	if faults := u.checker.Add(m.GetTasks()); faults != nil {
		return faults
	}
	for _, t := range m.GetTasks() {
		if err := u.encoder.add(t); err != nil {
			return err
		}
	}
	return nil
}

// begin takes what only the first message has.
func (u *upload) begin(m *dtaskv1.SubmitRequest) error {
	u.begun = true
	if n := len(m.GetIdempotencyKey()); n < 1 || n > maxKey {
		return invalid("idempotency_key: has %d bytes; send 1 to %d", n, maxKey)
	}
	if n := m.GetTotal(); n < 1 || n > spec.MaxTasks {
		return invalid("total: is %d; send 1 to %d", n, spec.MaxTasks)
	}
	header := m.GetHeader()
	if header == nil {
		return invalid("header: is missing; send it in the first message")
	}
	// The digest is over what was sent: coordinators with other defaults must
	// know the same job again.
	if err := u.encoder.begin(m); err != nil {
		return err
	}
	spec.Fill(header, u.cfg.TaskDefaults)
	u.checker = spec.NewChecker(header, spec.CheckOptions{MaxPayload: u.cfg.MaxPayload, Total: m.GetTotal()})
	if faults := u.checker.Add(nil); faults != nil {
		return faults
	}
	return u.encoder.header(header)
}
