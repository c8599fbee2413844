package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/worker/process"
)

const (
	// leastLog is what a log counts at least, so that their number is bounded.
	minLogCost = 4 << 10
	// logPiece is the most that one LogData carries.
	maxLogChunk = 64 << 10
	// logPoll is how often a reader looks whether an attempt has begun to write.
	logPoll = 200 * time.Millisecond
)

// errLogGone is what a reader is told when there is nothing to read.
var errNoLog = errors.New("no log of this attempt is kept here: it was removed to make room, its worker was restarted, or it never wrote one")

// attemptLog is what one attempt writes.
type attemptLog struct {
	stdout, stderr *process.Log
}

// logStore keeps the logs of attempts within a total bound: those that are
// written, and the youngest of those that are complete.
type logStore struct {
	dirs  *dirs
	bound int64 // bytes

	mu       sync.Mutex // guards all below; never held over writes of an attempt
	logs     map[ref]*attemptLog
	complete []ref // oldest first
	total    int64 // bytes of the complete ones
}

func newLogStore(d *dirs, bound int64) *logStore {
	return &logStore{dirs: d, bound: bound, logs: map[ref]*attemptLog{}}
}

// open makes the two logs of an attempt.
func (s *logStore) open(r ref) (*attemptLog, error) {
	s.mu.Lock() // so that close does not remove the folder meanwhile
	defer s.mu.Unlock()
	path := s.dirs.log(r)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("making the log folder: %w", err)
	}
	stdout, err := process.CreateLog(path+".stdout", process.LogLimits{})
	if err != nil {
		return nil, err //nolint:wrapcheck // says what it did
	}
	stderr, err := process.CreateLog(path+".stderr", process.LogLimits{})
	if err != nil {
		return nil, errors.Join(err, stdout.Close())
	}
	log := &attemptLog{stdout: stdout, stderr: stderr}
	s.logs[r] = log
	return log, nil
}

// write makes a complete log of an attempt whose standard error is text.
func (s *logStore) write(r ref, text []byte) error {
	log, err := s.open(r)
	if err != nil {
		return err
	}
	defer s.close(r)
	_, err = log.stderr.Write(text)
	return err //nolint:wrapcheck // says what it did
}

// close ends the logs of an attempt and removes the oldest beyond the bound.
func (s *logStore) close(r ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.logs[r]
	if log == nil {
		return
	}
	_ = log.stdout.Close() // what could be written was written
	_ = log.stderr.Close() // as above
	s.complete = append(s.complete, r)
	s.total += log.cost()
	for s.total > s.bound && len(s.complete) > 0 {
		oldest := s.complete[0]
		s.complete = s.complete[1:]
		s.total -= s.logs[oldest].cost()
		delete(s.logs, oldest)
		path := s.dirs.log(oldest)
		_ = os.Remove(path + ".stdout") // at worst the next start of the worker removes it
		_ = os.Remove(path + ".stderr") // as above
		_ = os.Remove(filepath.Dir(path))
	}
}

// cost is what a complete log takes of the bound.
func (l *attemptLog) cost() int64 {
	const most = 2*process.DefaultLogPart + minLogCost
	return max(minLogCost, min(l.stdout.Size(), most)) + max(minLogCost, min(l.stderr.Size(), most))
}

func (s *logStore) get(r ref) *attemptLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logs[r]
}

// serveLog answers a LogRequest with pieces until the log's end; the last one
// says so. send must not keep a piece's data after it returns.
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
		return // the reader or the session has gone
	}
	end := &dtaskv1.LogData{Id: q.GetId(), End: true}
	if err != nil {
		end.Error = clip(err.Error(), maxError)
	}
	_ = send(end) // fails only when the session has ended
}

type chunkFunc func(stream dtaskv1.LogStream, data []byte) error

// readLog hands the pieces of one or both streams to fn, one at a time.
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
	var one sync.Mutex // fn is called by one stream at a time
	var both sync.WaitGroup
	faults := make([]error, len(streams))
	for i, stream := range streams {
		both.Go(func() {
			faults[i] = log.read(ctx, stream, true, func(s dtaskv1.LogStream, data []byte) error {
				one.Lock()
				defer one.Unlock()
				return fn(s, data)
			})
		})
	}
	both.Wait()
	return errors.Join(faults...)
}

// awaitLog finds the log of an attempt; with follow it waits until an attempt
// that is held has begun to write one, or ended without.
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
			return nil, nil //nolint:nilnil // nothing was written yet, which is no error
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// read hands one stream to fn: what is there now, or until the attempt has
// ended. A nil log is empty.
func (l *attemptLog) read(ctx context.Context, stream dtaskv1.LogStream, follow bool, fn chunkFunc) error {
	if l == nil {
		return nil
	}
	log := l.stdout
	if stream == dtaskv1.LogStream_LOG_STREAM_STDERR {
		log = l.stderr
	}
	reader, err := log.NewReader()
	if errors.Is(err, os.ErrNotExist) {
		return errNoLog
	}
	if err != nil {
		return err //nolint:wrapcheck // says what it did
	}
	defer func() { _ = reader.Close() }() // read only
	piece := func(c process.Chunk) error {
		if gap := c.Gap(); gap != "" {
			if err := fn(stream, []byte(gap)); err != nil {
				return err
			}
		}
		return fn(stream, c.Data)
	}
	if follow {
		return reader.Follow(ctx, 0, piece) //nolint:wrapcheck // says what it did
	}
	return readNow(ctx, reader, piece)
}

// readNow hands on what the log holds at this moment, not what comes meanwhile.
func readNow(ctx context.Context, reader *process.LogReader, piece func(process.Chunk) error) error {
	end, buf := reader.Size(), make([]byte, maxLogChunk)
	for offset := int64(0); offset < end && ctx.Err() == nil; {
		chunk, err := reader.Read(offset, buf)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err //nolint:wrapcheck // says what it did
		}
		if err := piece(chunk); err != nil {
			return err
		}
		offset = chunk.Offset + int64(len(chunk.Data))
	}
	return nil
}
