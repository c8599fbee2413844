package worker

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/worker/process"
)

const (
	// minLogCost is what a log counts at least, so that the number of logs is
	// bounded.
	minLogCost = 4 << 10
	// maxLogChunk bounds the bytes of one LogData.
	maxLogChunk = 64 << 10
	// logPoll is how often a reader checks whether an attempt has created its
	// log.
	logPoll = 200 * time.Millisecond
)

// errNoLog is returned to readers of a log that does not exist.
var errNoLog = errors.New("no log of this attempt: it expired, the worker was restarted, or the attempt never wrote one")

// attemptLog is the output of one attempt.
type attemptLog struct {
	stdout, stderr *process.Log
}

// logStore stores the logs of attempts within a total bound: those being
// written, and the youngest of the complete ones.
type logStore struct {
	dirs  *dirs
	bound int64 // bytes

	mu       sync.Mutex // guards the rest; never held while an attempt writes
	logs     map[ref]*attemptLog
	complete []ref // oldest first
	total    int64 // bytes of the complete ones
}

func newLogStore(d *dirs, bound int64) *logStore {
	return &logStore{dirs: d, bound: bound, logs: map[ref]*attemptLog{}}
}

// open creates the two logs of an attempt.
func (s *logStore) open(r ref) *attemptLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := s.dirs.log(r)
	log := &attemptLog{
		stdout: process.NewLog(path+".stdout", process.LogLimits{}),
		stderr: process.NewLog(path+".stderr", process.LogLimits{}),
	}
	s.logs[r] = log
	return log
}

// write stores a complete log of an attempt, with text as its standard error.
func (s *logStore) write(r ref, text []byte) error {
	log := s.open(r)
	defer s.close(r)
	_, err := log.stderr.Write(text)
	return err //nolint:wrapcheck // has context
}

// close completes the logs of an attempt, and removes the oldest logs beyond
// the bound.
func (s *logStore) close(r ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.logs[r]
	if log == nil {
		return
	}
	_ = log.stdout.Close() // write errors don't matter to the attempt
	_ = log.stderr.Close() // as above
	s.complete = append(s.complete, r)
	s.total += log.cost()
	for s.total > s.bound && len(s.complete) > 0 {
		oldest := s.complete[0]
		s.complete = s.complete[1:]
		s.total -= s.logs[oldest].cost()
		s.logs[oldest].stdout.Remove()
		s.logs[oldest].stderr.Remove()
		delete(s.logs, oldest)
	}
}

// cost returns what a complete log counts towards the bound.
func (l *attemptLog) cost() int64 {
	const most = 2*process.DefaultLogPart + minLogCost
	return max(minLogCost, min(l.stdout.Size(), most)) + max(minLogCost, min(l.stderr.Size(), most))
}

func (s *logStore) get(r ref) *attemptLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logs[r]
}

// serveLog answers a LogRequest with chunks up to the end of the log; the last
// message has end set. send must not keep the data of a chunk after it returns.
func (w *Worker) serveLog(ctx context.Context, q *dtaskv1.LogRequest, send func(*dtaskv1.LogData) error) {
	err := w.readLog(ctx, q, func(stream dtaskv1.LogStream, data []byte) error {
		for len(data) > 0 {
			n := min(len(data), maxLogChunk)
			if err := send(&dtaskv1.LogData{Id: q.GetId(), Stream: stream, Data: data[:n]}); err != nil {
				return err
			}
			data = data[n:]
		}
		return nil
	})
	if ctx.Err() != nil {
		return // the reader or the session is gone
	}
	end := &dtaskv1.LogData{Id: q.GetId(), End: true}
	if err != nil {
		end.Error = clip(err.Error(), maxError)
	}
	_ = send(end) // fails only when the session has ended
}

type chunkFunc func(stream dtaskv1.LogStream, data []byte) error

// readLog passes the chunks of one or both streams to fn, one after another.
func (w *Worker) readLog(ctx context.Context, q *dtaskv1.LogRequest, fn chunkFunc) error {
	log, err := w.awaitLog(ctx, refOf(q.GetAttempt()), q.GetFollow())
	if err != nil {
		return err
	}
	streams := []dtaskv1.LogStream{q.GetStream()}
	if q.GetStream() == dtaskv1.LogStream_LOG_STREAM_UNSPECIFIED {
		streams = []dtaskv1.LogStream{dtaskv1.LogStream_LOG_STREAM_STDOUT, dtaskv1.LogStream_LOG_STREAM_STDERR}
	}
	if !q.GetFollow() || len(streams) == 1 {
		for _, stream := range streams {
			if err := log.read(ctx, stream, q.GetFollow(), fn); err != nil {
				return err
			}
		}
		return nil
	}
	var one sync.Mutex // serializes the calls of fn
	var both sync.WaitGroup
	errs := make([]error, len(streams))
	for i, stream := range streams {
		both.Go(func() {
			errs[i] = log.read(ctx, stream, true, func(s dtaskv1.LogStream, data []byte) error {
				one.Lock()
				defer one.Unlock()
				return fn(s, data)
			})
		})
	}
	both.Wait()
	return errors.Join(errs...)
}

// awaitLog returns the log of an attempt. With follow it waits until a held
// attempt has created one, or has ended without.
func (w *Worker) awaitLog(ctx context.Context, r ref, follow bool) (*attemptLog, error) {
	ticker := time.NewTicker(logPoll)
	defer ticker.Stop()
	for {
		ended := w.attempts.ended(r) // first: it writes before it ends
		if log := w.logs.get(r); log != nil {
			return log, nil
		}
		if ended {
			return nil, errNoLog
		}
		if !follow {
			return nil, nil //nolint:nilnil // not written yet, which is not an error
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// read passes one stream to fn: its current contents, or with follow until the
// attempt has ended. A nil log is empty.
func (l *attemptLog) read(ctx context.Context, stream dtaskv1.LogStream, follow bool, fn chunkFunc) error {
	if l == nil {
		return nil
	}
	log := l.stdout
	if stream == dtaskv1.LogStream_LOG_STREAM_STDERR {
		log = l.stderr
	}
	reader, err := log.NewReader()
	if err != nil {
		return expiredOr(err)
	}
	defer func() { _ = reader.Close() }() // read only
	chunk := func(c process.Chunk) error {
		if gap := c.Gap(); gap != "" {
			if err := fn(stream, []byte(gap)); err != nil {
				return err
			}
		}
		return fn(stream, c.Data)
	}
	if follow {
		return expiredOr(reader.Follow(ctx, 0, chunk))
	}
	return expiredOr(readNow(ctx, reader, chunk))
}

// expiredOr returns errNoLog for the error of a file that was removed because
// its log expired.
func expiredOr(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return errNoLog
	}
	return err
}

// readNow passes on the current contents of the log, without what is written
// meanwhile.
func readNow(ctx context.Context, reader *process.LogReader, pass func(process.Chunk) error) error {
	end, buf := reader.Size(), make([]byte, maxLogChunk)
	for offset := int64(0); offset < end && ctx.Err() == nil; {
		chunk, err := reader.Read(offset, buf)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err //nolint:wrapcheck // has context
		}
		if err := pass(chunk); err != nil {
			return err
		}
		offset = chunk.Offset + int64(len(chunk.Data))
	}
	return nil
}
