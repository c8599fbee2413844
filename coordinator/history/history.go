package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/fsm"
)

// History is the history of one replica. It is safe for concurrent use.
type History struct {
	cfg  Config
	log  *slog.Logger
	file *file

	mu            sync.Mutex // guards what follows; held for memory only
	meta          meta       // as stored in the file
	queue         []queued   // what is not in the file, in the order of the log
	pending       map[fsm.JobID]*fsm.ArchivedJob
	pendingBytes  int
	expireBefore  int64       // ms; jobs that finished earlier may be dropped
	newGaps       []gap       // not in the file yet
	gapEnd        uint64      // log index of the end of newGaps
	syncTarget    uint64      // log index that Sync waits for
	moreExpired   bool        // the last write left expired jobs
	damaged       bool        // the writer must quarantine the file
	importing     *importFile // nil: nothing is imported
	importDamaged bool        // it was found damaged
	importRead    bool        // all that can be read of a damaged one is in the file
	toImport      uint64      // jobs of it that are not in the file yet
	closed        bool
	changed       chan struct{} // closed and replaced by signalLocked

	wake     chan struct{}     // to the writer; size 1: one signal is enough
	requests chan writeRequest // to the writer, from the fetcher and the scrubber

	encoder encoder // of the writer

	expired, quarantined, fetched, failures, scrubbed, scrubs atomic.Uint64
}

// queued is a job, or the end of a log entry, that is not in the file yet.
type queued struct {
	index uint64
	job   *fsm.ArchivedJob // nil: all jobs that left at this index precede it in the queue
	cost  int
	since time.Time
}

// Open opens the history. It quarantines a damaged file and starts a new one. An
// error means that there can be no history: the file is in use, can't be accessed,
// or has another format.
func Open(cfg Config) (*History, error) {
	cfg.defaults()
	h := &History{
		cfg: cfg, log: cfg.Logger, pending: make(map[fsm.JobID]*fsm.ArchivedJob),
		changed: make(chan struct{}), wake: make(chan struct{}, 1), requests: make(chan writeRequest),
		encoder: encoder{records: fsm.RecordWriter{Summarize: cfg.Summarize}},
	}
	f, m, err := openFile(cfg.Path)
	if isDamaged(err) {
		h.logQuarantine(err)
		f, m = &file{path: cfg.Path}, meta{}
		err = f.restart()
	}
	if err != nil {
		return nil, fmt.Errorf("opening history file %s: %w", cfg.Path, err)
	}
	h.file, h.meta, h.expireBefore = f, m, m.expireBefore
	if err := h.openImport(); err != nil {
		return nil, errors.Join(fmt.Errorf("opening %s: %w", cfg.Path+ImportSuffix, err), f.close())
	}
	return h, nil
}

func (h *History) logQuarantine(cause error) {
	h.quarantined.Add(1)
	h.log.Error("quarantined damaged history file; fetching jobs from other replicas", "path", h.cfg.Path+quarantineSuffix, "err", cause)
}

// Run writes, expires, fetches and checks until ctx is done. What is not written
// then is still in the log.
func (h *History) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return h.write(ctx) })
	group.Go(func() error { return h.fetch(ctx) })
	group.Go(func() error { return h.scrub(ctx) })
	err := group.Wait()
	h.mu.Lock()
	h.closed = true
	h.signalLocked()
	h.mu.Unlock()
	return errors.Join(err, h.Close())
}

// Close closes a history that Run was not called on.
func (h *History) Close() error {
	h.mu.Lock()
	f := h.importing
	h.importing = nil
	h.mu.Unlock()
	if f == nil {
		return h.file.close()
	}
	return errors.Join(f.close(), h.file.close())
}

// signalLocked wakes the goroutines in await.
func (h *History) signalLocked() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// await waits until ok, which is called with the lock held, returns true.
func (h *History) await(ctx context.Context, ok func() bool) error {
	for {
		h.mu.Lock()
		done, closed, changed := ok(), h.closed, h.changed
		h.mu.Unlock()
		switch {
		case done:
			return nil
		case closed:
			return errClosed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (h *History) wakeWriter() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// WaitForSpace implements fsm.Archiver. It also returns when the history is closed, and
// no longer read.
func (h *History) WaitForSpace() {
	_ = h.await(context.Background(), func() bool { return h.pendingBytes < h.cfg.MaxPendingBytes })
}

// Busy reports whether so many jobs wait to be written that no more should leave the
// state.
func (h *History) Busy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pendingBytes >= h.cfg.BusyBytes
}

// Take implements fsm.Archiver.
func (h *History) Take(index uint64, left *fsm.ArchiveBatch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expireBefore = max(h.expireBefore, left.EndedBefore)
	if index <= h.meta.completeTo || index <= h.gapEnd {
		return // replayed
	}
	now := time.Now()
	for _, a := range left.Jobs {
		cost := a.Cost()
		h.queue = append(h.queue, queued{index: index, job: a, cost: cost, since: now})
		h.pending[a.ID()] = a
		h.pendingBytes += cost
	}
	h.queue = append(h.queue, queued{index: index, since: now})
	h.wakeWriter()
}

// Restored implements fsm.Archiver.
func (h *History) Restored(index uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	from := h.takenToLocked()
	if index <= from {
		return
	}
	h.newGaps = append(h.newGaps, h.gapsLocked(gap{From: Position{Index: from, Job: lastJob}, To: index})...)
	h.gapEnd = index
	h.wakeWriter()
}

// takenToLocked returns the last log index that Take or Restored was called for.
func (h *History) takenToLocked() uint64 {
	at := max(h.meta.completeTo, h.gapEnd)
	if n := len(h.queue); n > 0 {
		at = max(at, h.queue[n-1].index)
	}
	return at
}

// Sync returns when the file, synced, has all jobs that left up to an applied log
// index. It must be called before the log is compacted up to that index.
func (h *History) Sync(ctx context.Context, index uint64) error {
	h.mu.Lock()
	h.syncTarget = max(h.syncTarget, index)
	h.mu.Unlock()
	h.wakeWriter()
	if err := h.await(ctx, func() bool { return h.meta.completeTo >= index }); err != nil {
		return fmt.Errorf("writing history up to log index %d: %w", index, err)
	}
	return nil
}

// Incomplete reports whether jobs are missing that another replica may have.
func (h *History) Incomplete() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.incompleteLocked()
}

func (h *History) incompleteLocked() bool {
	missing := func(g gap) bool { return !h.hasAllLocked(g) }
	return h.damaged || slices.ContainsFunc(h.meta.gaps, missing) || slices.ContainsFunc(h.newGaps, missing)
}

// ImportProgress returns how many jobs of a restored backup are imported, 0 if none are, and
// how many of these are left.
func (h *History) ImportProgress() (jobs, left uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.importProgressLocked()
}

func (h *History) importProgressLocked() (jobs, left uint64) {
	if h.importing == nil {
		return 0, 0
	}
	return h.importing.jobs, h.toImport
}

// Stats returns the current counts and sizes.
func (h *History) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Stats{
		Jobs: h.meta.jobs, Bytes: h.meta.bytes, FileBytes: h.file.size(), Pending: len(h.pending), PendingBytes: h.pendingBytes,
		CompleteTo: h.meta.completeTo, Incomplete: h.incompleteLocked(), Expired: h.expired.Load(), Quarantined: h.quarantined.Load(),
		Fetched: h.fetched.Load(), Scrubbed: h.scrubbed.Load(), Scrubs: h.scrubs.Load(), WriteFailures: h.failures.Load(),
	}
	s.ImportJobs, s.ToImport = h.importProgressLocked()
	if len(h.queue) > 0 {
		s.Lag = time.Since(h.queue[0].since)
	}
	return s
}

// checkDamage makes the writer quarantine the file if err reports damage.
func (h *History) checkDamage(err error) {
	if !isDamaged(err) {
		return
	}
	h.mu.Lock()
	h.damaged = true
	h.mu.Unlock()
	h.log.Error("history file is damaged", "err", err)
	h.wakeWriter()
}
