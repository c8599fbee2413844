package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dtask/dtask/internal/loglimit"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/worker/logs"
)

const (
	// maxLogChunk bounds the bytes of one LogData, unless it has a single piece.
	maxLogChunk = 64 << 10
	// logPoll is how often a reader checks whether an attempt has begun to write.
	logPoll = 200 * time.Millisecond
	// followPause is the minimum time between two messages to a follower that has
	// received everything. It keeps lines that follow each other closely in one
	// message: a leader buffers a fixed number.
	followPause = 5 * time.Millisecond
)

// attemptLogs are the logs of a cluster's attempts, in a directory of this worker.
// Attempts of other clusters have the same numbers, so that each cluster has a directory
// of its own. Which cluster it is, is known from the first message of a leader on.
type attemptLogs struct {
	dir     string // of all clusters
	limits  logs.Limits
	cluster func() string
	log     *slog.Logger
	limiter loglimit.Limiter // of messages
	dropped atomic.Uint64    // bytes of output of attempts without a store

	mu     sync.Mutex // guards the rest
	opened *logs.Store
}

func newAttemptLogs(dir string, limits logs.Limits, cluster func() string, log *slog.Logger) *attemptLogs {
	limits.Fill()
	return &attemptLogs{dir: dir, limits: limits, cluster: cluster, log: log}
}

// store opens the store when it is first needed, and tries again after an error.
func (l *attemptLogs) store() (*logs.Store, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.opened == nil {
		cluster := l.cluster()
		if cluster == "." || cluster == ".." || cluster != filepath.Base(cluster) { // not an ID: it must not leave the directory
			cluster = "unknown"
		}
		own := filepath.Join(l.dir, cluster)
		l.removeOthers(own)
		opened, err := logs.Open(own, l.limits)
		if err != nil {
			return nil, fmt.Errorf("opening the store of logs: %w", err)
		}
		l.opened = opened
	}
	return l.opened, nil
}

// minExpiryInterval bounds how often limits are checked.
const minExpiryInterval = time.Second

// expire removes what exceeds the limits until ctx is done or stop is called, which waits
// for the goroutine. Writing removes too, but a worker without output must also forget.
func (l *attemptLogs) expire(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(max(min(l.limits.Age/8, time.Hour), minExpiryInterval))
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			l.mu.Lock()
			opened := l.opened
			l.mu.Unlock()
			if opened != nil {
				opened.Expire()
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// warn reports that output was not stored.
func (l *attemptLogs) warn(err error) {
	if suppressed, ok := l.limiter.Allow("not stored"); ok {
		l.log.Warn("output of attempts not stored", "err", err, "suppressed", suppressed)
	}
}

// removeOthers removes the logs of other clusters that have expired, and what an earlier
// version left.
func (l *attemptLogs) removeOthers(own string) {
	entries, _ := os.ReadDir(l.dir) // nothing to remove, or found again
	for _, e := range entries {
		path := filepath.Join(l.dir, e.Name())
		info, err := e.Info()
		if err == nil && path != own && (!e.IsDir() || time.Since(info.ModTime()) > l.limits.Age) {
			_ = os.RemoveAll(path) // as above
		}
	}
}

func (l *attemptLogs) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.opened == nil {
		return nil
	}
	if err := l.opened.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
		return fmt.Errorf("closing logs: %w", err)
	}
	return nil
}

// An attemptLog receives the output of one attempt. A full disk or a damaged directory
// costs only the log, not the attempt.
type attemptLog struct {
	w       *logs.Writer // nil: nothing is kept
	warn    func(error)
	dropped *atomic.Uint64 // counts bytes if nothing is kept
}

// stats returns what is on disk, and how much output could not be stored.
func (l *attemptLogs) stats() logs.Stats {
	l.mu.Lock()
	opened := l.opened
	l.mu.Unlock()
	var s logs.Stats
	if opened != nil {
		s = opened.Stats()
	}
	s.Dropped += l.dropped.Load()
	return s
}

// begin begins the log of an attempt.
func (l *attemptLogs) begin(r ref) *attemptLog {
	store, err := l.store()
	if err != nil {
		l.warn(err)
		return &attemptLog{dropped: &l.dropped}
	}
	return &attemptLog{w: store.Writer(logs.Attempt{Job: r.job, Index: r.task, Attempt: r.attempt}), warn: l.warn}
}

func (l *attemptLog) end() {
	if l.w == nil {
		return
	}
	if err := l.w.Close(); err != nil {
		l.warn(err)
	}
}

// stream returns a writer of a stream, which always succeeds.
func (l *attemptLog) stream(s logs.Stream) streamWriter { return streamWriter{l, s} }

type streamWriter struct {
	log    *attemptLog
	stream logs.Stream
}

// Write implements io.Writer.
func (s streamWriter) Write(p []byte) (int, error) {
	if s.log.w == nil {
		s.log.dropped.Add(uint64(len(p)))
		return len(p), nil
	}
	if err := s.log.w.Write(s.stream, p); err != nil {
		s.log.warn(err)
	}
	return len(p), nil
}

// serveLog answers a LogRequest with the pieces of a log; the last message has end set.
func (w *Worker) serveLog(ctx context.Context, q *dtaskv1.LogRequest, send func(*dtaskv1.LogData) error) {
	m, size := &dtaskv1.LogData{Id: q.GetId()}, 0
	flush := func() error {
		if len(m.GetPieces()) == 0 {
			return nil
		}
		full := m
		m, size = &dtaskv1.LogData{Id: q.GetId()}, 0
		return send(full)
	}
	err := w.readLog(ctx, q, func(p *dtaskv1.LogPiece) error {
		if n := len(p.GetData()) + pieceCost; size+n > maxLogChunk {
			if err := flush(); err != nil {
				return err
			}
		}
		m.Pieces, size = append(m.Pieces, p), size+len(p.GetData())+pieceCost
		return nil
	}, func() error {
		if len(m.GetPieces()) == 0 {
			return nil
		}
		err := flush()
		select {
		case <-time.After(followPause):
		case <-ctx.Done():
		}
		return err
	})
	if ctx.Err() != nil {
		return // the reader or the session is gone
	}
	m.End = true
	if err != nil {
		m.Error, m.Absent = clip(err.Error(), maxError), errors.Is(err, errAbsentLog)
	}
	_ = send(m) // fails only when the session has ended
}

// errAbsentLog is returned for an attempt that does not run here, and of which there is
// no log.
var errAbsentLog = errors.New("the attempt wrote nothing, or its log was removed")

// pieceCost is about what a piece costs in a message, in addition to its data.
const pieceCost = 24

// logStreams are the streams as leaders name them.
var logStreams = map[logs.Stream]dtaskv1.LogStream{
	logs.Stdout: dtaskv1.LogStream_LOG_STREAM_STDOUT, logs.Stderr: dtaskv1.LogStream_LOG_STREAM_STDERR,
}

// readLog passes the output of an attempt to fn, in the order in which it was written.
// It calls idle before it waits for more.
func (w *Worker) readLog(ctx context.Context, q *dtaskv1.LogRequest, fn func(*dtaskv1.LogPiece) error, idle func() error) error {
	store, err := w.logs.store()
	if err != nil {
		return err
	}
	r := refOf(q.GetAttempt())
	a := logs.Attempt{Job: r.job, Index: r.task, Attempt: r.attempt}
	pass := func(p logs.Piece) error {
		stream := logStreams[p.Stream]
		if only := q.GetStream(); only != dtaskv1.LogStream_LOG_STREAM_UNSPECIFIED && only != stream {
			return nil
		}
		return fn(&dtaskv1.LogPiece{Stream: stream, TimeMs: p.TimeMS, Offset: p.Offset, Data: p.Data})
	}
	ticker := time.NewTicker(logPoll)
	defer ticker.Stop()
	for {
		ended := w.attempts.ended(r) // first: it writes before it ends
		switch err := store.Read(ctx, a, q.GetFollow(), pass, idle); {
		case isGone(err):
			return fmt.Errorf("%w: %s", err, w.logs.kept(w.name, store))
		case !errors.Is(err, logs.ErrNone):
			return err //nolint:wrapcheck // has context
		case ended:
			return fmt.Errorf("%w: %s", errAbsentLog, w.logs.kept(w.name, store))
		case !q.GetFollow():
			return nil // nothing was written yet
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func isGone(err error) bool {
	_, ok := errors.AsType[*logs.GoneError](err)
	return ok
}

// kept describes what a worker keeps, which is why other logs are gone.
func (l *attemptLogs) kept(worker string, s *logs.Store) string {
	size, unit := l.limits.Bytes>>20, "MiB"
	if l.limits.Bytes < 10<<20 {
		size, unit = l.limits.Bytes>>10, "KiB"
	}
	age := l.limits.Age.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(age, zero) {
			age = age[:len(age)-2]
		}
	}
	text := fmt.Sprintf("worker %s keeps logs for %s, %d %s and %d attempts", worker, age, size, unit, l.limits.Attempts)
	if oldest := s.Oldest(); !oldest.IsZero() {
		text += ", at present since " + oldest.UTC().Format(time.RFC3339)
	}
	return text
}
