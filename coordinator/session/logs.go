package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// ErrWorkerAway is returned when logs cannot be read because their worker has no
// session.
var ErrWorkerUnavailable = errors.New("session: the worker that has the logs is not connected")

// ErrLogsGone is returned when the worker does not have the logs (any more).
var ErrLogsUnavailable = errors.New("session: the worker does not have these logs any more")

// logReader is somebody who reads the logs of an attempt.
type logReader struct {
	data chan *dtaskv1.LogData // sized so that a whole bounded log fits
	slow chan struct{}         // closed when the reader did not keep up
}

const maxBufferedChunks = 256

// Logs reads what an attempt wrote, from the worker that has it, until its end
// or, if follow is set, until the attempt has ended. Errors: ErrWorkerAway,
// ErrLogsGone, what send returns, and the context's.
func (s *Service) Logs(ctx context.Context, h fsm.HeldAttempt, stream dtaskv1.LogStream, follow bool, send func(*dtaskv1.LogData) error) error {
	x := s.session(h.Worker)
	if x == nil {
		return ErrWorkerUnavailable
	}
	r := &logReader{data: make(chan *dtaskv1.LogData, maxBufferedChunks), slow: make(chan struct{})}
	id := x.askLogs(r, &dtaskv1.LogRequest{Attempt: attemptRef(h.AttemptRef), Stream: stream, Follow: follow})
	defer x.endLogs(id)
	for {
		select {
		case d := <-r.data:
			if done, err := take(d, send); done {
				return err
			}
		case <-r.slow:
			return errors.New("session: the reader of the logs is too slow for what is written")
		case <-x.slot.ctx.Done():
			return r.rest(send)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// rest hands over what came before the worker left. It may be all that there is.
func (r *logReader) rest(send func(*dtaskv1.LogData) error) error {
	for {
		select {
		case d := <-r.data:
			if done, err := take(d, send); done {
				return err
			}
		default:
			return ErrWorkerUnavailable
		}
	}
}

// take hands over a piece, and reports whether it was the last, and why.
func take(d *dtaskv1.LogData, send func(*dtaskv1.LogData) error) (done bool, err error) {
	if d.GetError() != "" {
		return true, fmt.Errorf("%w: %s", ErrLogsUnavailable, d.GetError())
	}
	if len(d.GetData()) > 0 {
		if err := send(d); err != nil {
			return true, err
		}
	}
	return d.GetEnd(), nil
}

func (x *session) askLogs(r *logReader, q *dtaskv1.LogRequest) uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.lastLog++
	q.Id = x.lastLog
	x.readers[q.GetId()] = r
	x.logs = append(x.logs, q)
	x.slot.wake()
	return q.GetId()
}

// endLogs tells the worker that nobody reads any more.
func (x *session) endLogs(id uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, ok := x.readers[id]; ok {
		x.cancelLogsLocked(id)
	}
}

func (x *session) cancelLogsLocked(id uint64) {
	delete(x.readers, id)
	x.logs = append(x.logs, &dtaskv1.LogRequest{Id: id, Cancel: true})
	x.slot.wake()
}

// logData hands a piece to its reader. One that does not keep up is cut off: a
// session is never held up by logs.
func (x *session) logData(d *dtaskv1.LogData) {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.readers[d.GetId()]
	if r == nil {
		return
	}
	select {
	case r.data <- d:
		if d.GetEnd() {
			delete(x.readers, d.GetId())
		}
	default:
		close(r.slow)
		x.cancelLogsLocked(d.GetId())
	}
}
