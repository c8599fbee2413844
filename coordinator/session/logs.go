package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// ErrWorkerUnavailable is returned if the worker that stores the logs has no
// session.
var ErrWorkerUnavailable = errors.New("session: worker with the logs is not connected")

// ErrLogsUnavailable is returned, with the worker's reason, if the worker does not store
// the logs (any longer).
var ErrLogsUnavailable = errors.New("session: log not available")

// errAbsentLog is an ErrLogsUnavailable of a worker that may not have received the
// attempt yet.
var errAbsentLog = fmt.Errorf("%w", ErrLogsUnavailable)

// ErrSlowReader is returned if send takes so long that the worker's data can't be
// buffered. The reader may read again, and skip what it has.
var ErrSlowReader = errors.New("session: reader of logs is too slow")

// logReader is one reader of an attempt's logs.
type logReader struct {
	data chan *dtaskv1.LogData // holds a whole bounded log
	slow chan struct{}         // closed if the reader did not keep up
}

const maxBufferedChunks = 256

// Logs passes the logs of an attempt from its worker to send, up to their end
// or, with follow, until the attempt has ended. It returns
// ErrWorkerUnavailable, ErrLogsUnavailable, ErrSlowReader, the error of send, or that
// of ctx.
//
// An assignment is visible to readers before it is sent. A worker that knows nothing of
// an attempt that was live when it was asked is therefore asked again.
func (s *Service) Logs(ctx context.Context, h fsm.HeldAttempt, stream dtaskv1.LogStream, follow bool, send func(*dtaskv1.LogData) error) error {
	for {
		live := false
		s.cfg.Machine.Read(func(st *fsm.State, _ uint64) { live = st.Live(h) })
		err := s.readLog(ctx, h, stream, follow, send)
		if !live || !errors.Is(err, errAbsentLog) {
			return err
		}
		select {
		case <-time.After(absentLogPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// absentLogPause is the time after which a worker is asked again.
const absentLogPause = 50 * time.Millisecond

// readLog asks the worker of an attempt for its logs once.
func (s *Service) readLog(ctx context.Context, h fsm.HeldAttempt, stream dtaskv1.LogStream, follow bool, send func(*dtaskv1.LogData) error) error {
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
			return ErrSlowReader
		case <-x.slot.ctx.Done():
			return r.rest(send)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// rest passes on the data that arrived before the worker disconnected.
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

// take passes on a chunk, and reports whether it was the last one, and why.
func take(d *dtaskv1.LogData, send func(*dtaskv1.LogData) error) (done bool, err error) {
	switch {
	case d.GetAbsent():
		return true, fmt.Errorf("%w: %s", errAbsentLog, d.GetError())
	case d.GetError() != "":
		return true, fmt.Errorf("%w: %s", ErrLogsUnavailable, d.GetError())
	}
	if len(d.GetPieces()) > 0 {
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

// endLogs tells the worker that the reader is gone.
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

// logData passes a chunk to its reader. A reader that does not keep up is
// dropped: logs must never delay a session.
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
