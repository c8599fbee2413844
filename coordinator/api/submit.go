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

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/array"
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
	err := j.store(stream)
	j.refused.count(err)
	return err
}

// store receives a job, hands it to the leader and answers.
func (j *jobs) store(stream submitStream) error {
	leader := j.cfg.Leader()
	if leader == nil {
		return errNotLeader // before a byte of the job was read
	}
	u := &upload{Server: j.Server}
	defer u.release()
	if err := u.ask(stream); err != nil {
		return err
	}
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
		// The next message comes while this one is checked.
		if err := u.ask(stream); err != nil {
			return err
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
	return stream.SendAndClose(storedJob(stored))
}

func storedJob(s sequencer.SubmitResult) *dtaskv1.SubmitResponse {
	return &dtaskv1.SubmitResponse{Id: strconv.FormatUint(uint64(s.ID), 10), Existed: s.Existed, Index: s.Index}
}

// upload is a submission that is being received. It is used by one call.
type upload struct {
	*Server
	held    int64 // bytes of Server.uploads
	coming  receiving
	begun   bool
	header  *dtaskv1.JobHeader // of this job or the one before; nil: of none
	checker *spec.Checker
	encoder jobEncoder
}

// ask begins to receive the next message. The memory of a whole one is set aside before
// it is read, and next keeps what it really takes.
func (u *upload) ask(stream submitStream) error {
	if err := u.take(maxMessage); err != nil {
		return err
	}
	u.coming = receive(stream)
	return nil
}

// next gives the message that was asked for.
func (u *upload) next(stream submitStream) (*dtaskv1.SubmitRequest, error) {
	m, err := u.coming.wait(stream.Context(), u.cfg.UploadPause)
	if err != nil {
		return nil, err
	}
	size := proto.Size(m)
	if size > maxMessage {
		return nil, invalid("message: has %d bytes; send at most %d, and the rest of the tasks in further ones", size, maxMessage)
	}
	cost := int64(size + tasksCost(m))
	if cost > maxMessage {
		return m, u.take(cost - maxMessage)
	}
	u.uploads.Release(maxMessage - cost)
	u.held -= maxMessage - cost
	return m, nil
}

// tasksCost is what the tasks of a message cost beside its size.
func tasksCost(m *dtaskv1.SubmitRequest) int {
	const number = 4 // bytes that a number takes in memory; in the message it may be one
	c := m.GetColumns()
	numbers := len(c.GetIdSizes()) + len(c.GetPolicies()) + len(c.GetDependencyCounts()) + len(c.GetDistances()) + len(c.GetBodySizes())
	return (len(m.GetTasks())+len(c.GetIdSizes()))*taskCost + numbers*number
}

func (u *upload) take(n int64) error {
	if !u.uploads.TryAcquire(n) {
		return &Error{Kind: KindBusy, limit: limitUploads, Message: "too many submissions are being received", RetryAfter: uploadRetry}
	}
	u.held += n
	return nil
}

func (u *upload) release() { u.uploads.Release(u.held) }

// received is what came.
type received struct {
	m   *dtaskv1.SubmitRequest
	err error
}

// receiving is a message on its way.
type receiving chan received

// receive begins to receive a message. Nothing but the end of the call makes Recv return, so
// that the goroutine that waits in it is not waited for here: it touches the stream
// and its channel, and the end of the call ends it.
func receive(stream submitStream) receiving {
	got := make(receiving, 1) // size 1: the call may have ended
	go func() {
		m, err := stream.Recv()
		got <- received{m, err}
	}()
	return got
}

// wait waits for the message for at most a pause.
func (got receiving) wait(ctx context.Context, pause time.Duration) (*dtaskv1.SubmitRequest, error) {
	limit := time.NewTimer(pause)
	defer limit.Stop()
	select {
	case r := <-got:
		return r.m, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
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
	if m.GetColumns() != nil && len(m.GetTasks()) > 0 {
		return invalid("columns: come in the place of tasks; send one of the two in a message")
	}
	tasks := uint64(u.encoder.tasks) + uint64(len(m.GetColumns().GetIdSizes()))
	for _, t := range m.GetTasks() {
		tasks += array.Tasks(t)
	}
	if total := u.encoder.s.Total; tasks > uint64(total) {
		return invalid("total: %d were announced, and more came; announce as many as are sent", total)
	}
	if m.GetColumns() != nil {
		return u.addColumns(m.GetColumns())
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
	if err := u.beginHeader(m); err != nil {
		return err
	}
	if n := len(m.GetIdempotencyKey()); n < 1 || n > maxKey {
		return invalid("idempotency_key: has %d bytes; send 1 to %d", n, maxKey)
	}
	if n := m.GetTotal(); n < 1 || n > spec.MaxTasks {
		return invalid("total: is %d; send 1 to %d", n, spec.MaxTasks)
	}
	if faults := u.checker.Add(nil); faults != nil {
		return faults
	}
	// A job that is stored already costs nothing, however often it is sent; what
	// is known is looked up in what is applied here, so that a repeat may need a
	// token while the first is on its way.
	if u.limit.rate > 0 && !u.known(m.GetIdempotencyKey()) {
		return u.limit.take(u.header.GetOwner())
	}
	return nil
}

// beginHeader takes the header of a job, or goes on with that of the job before in the same
// call: what was found out about it is not looked for again.
func (u *upload) beginHeader(m *dtaskv1.SubmitRequest) error {
	if m.GetHeader() == nil {
		if u.header == nil {
			return invalid("header: is missing; send it in the first message")
		}
		u.encoder.again(m)
		u.checker.Next(m.GetTotal())
		return nil
	}
	u.header = nil // until this one is taken
	// The digest is over what was sent: coordinators with other defaults must
	// know the same job again.
	if err := u.encoder.begin(m); err != nil {
		return err
	}
	spec.Fill(m.GetHeader(), u.cfg.TaskDefaults)
	u.checker = spec.NewChecker(m.GetHeader(), spec.CheckOptions{MaxPayload: u.cfg.MaxPayload, Total: m.GetTotal()})
	if err := u.encoder.header(m.GetHeader()); err != nil {
		return err
	}
	u.header = m.GetHeader()
	return nil
}

// known reports whether there is a job with an idempotency key.
func (u *upload) known(key string) (known bool) {
	u.cfg.Machine.Read(func(s *fsm.State, _ uint64) { _, _, _, known = s.Key(key) })
	return known
}
