package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/fsm"
)

// History is the history of one replica. Safe for concurrent use.
type History struct {
	cfg  Config
	log  *slog.Logger
	file *file

	mu      sync.Mutex // guards what follows; held for memory only
	meta    meta       // as the file has it
	queue   []waiting  // what is not in the file, in the order of the log
	pending map[fsm.JobID]*fsm.ArchivedJob
	bytes   int    // their memory
	before  int64  // ms; what ended before may go
	newGaps []gap  // not in the file yet
	gapped  uint64 // log index up to which newGaps reach
	synced  uint64 // log index that the file shall reach
	more    bool   // there is more to expire
	bad     bool   // the file is damaged: it is to be set aside
	over    bool
	change  chan struct{} // closed and replaced when any of this changes for those who wait

	wake   chan struct{} // to the writer; size 1: one is enough
	orders chan order    // to the writer, from the fetcher

	records fsm.RecordWriter // of the writer
	head    []byte           // memory for a record
	rest    []byte           // memory for what is cut into parts

	expired, asides, fetched, failures, scrubbed, scrubs atomic.Uint64
}

// waiting is a job that is not in the file yet.
type waiting struct {
	index uint64
	job   *fsm.ArchivedJob // nil: all that left at this index is before it in the queue
	cost  int
	since time.Time
}

// Open opens the history. A file that cannot be read is set aside, and a new one
// begins; an error means that there can be none.
func Open(cfg Config) (*History, error) {
	cfg.defaults()
	h := &History{
		cfg: cfg, log: cfg.Logger, pending: make(map[fsm.JobID]*fsm.ArchivedJob),
		change: make(chan struct{}), wake: make(chan struct{}, 1), orders: make(chan order),
	}
	f, err := openFile(cfg.Path)
	if err == nil {
		h.file = f
		err = f.view(func(tx *bbolt.Tx) (err error) {
			h.meta, err = loadMeta(tx)
			return err
		})
	}
	if damage, ok := errors.AsType[*DamageError](err); ok {
		h.log.Error("the history is damaged: it is set aside, and is fetched from the other replicas", "err", damage, "kept_as", cfg.Path+asideName)
		h.asides.Add(1)
		h.file, h.meta = &file{path: cfg.Path}, meta{}
		err = h.file.begin()
	}
	if err != nil {
		return nil, fmt.Errorf("opening the history: %w", err)
	}
	h.before = h.meta.endedBefore
	return h, nil
}

// Run writes, expires, fetches and checks until ctx is done. What is not written then is in
// the log.
func (h *History) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return h.write(ctx) })
	group.Go(func() error { return h.fetch(ctx) })
	group.Go(func() error { return h.scrub(ctx) })
	err := group.Wait()
	h.mu.Lock()
	h.over = true
	h.tell()
	h.mu.Unlock()
	return errors.Join(err, h.file.close())
}

// Close closes a history that does not run.
func (h *History) Close() error { return h.file.close() }

// tell wakes those who wait for a change. The lock is held.
func (h *History) tell() {
	close(h.change)
	h.change = make(chan struct{})
}

// await waits until ok, which is called with the lock held.
func (h *History) await(ctx context.Context, ok func() bool) error {
	for {
		h.mu.Lock()
		done, over, change := ok(), h.over, h.change
		h.mu.Unlock()
		switch {
		case done:
			return nil
		case over:
			return errClosed
		}
		select {
		case <-change:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// rouse lets the writer look.
func (h *History) rouse() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Room implements fsm.Archiver.
func (h *History) WaitForSpace() {
	_ = h.await(context.Background(), func() bool { return h.bytes < h.cfg.Most }) // or it is over, and nobody reads any more
}

// Busy reports whether so much waits to be written that nothing more should leave the
// state.
func (h *History) Busy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.bytes >= h.cfg.Waiting
}

// Take implements fsm.Archiver.
func (h *History) Take(index uint64, left *fsm.ArchiveBatch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.before = max(h.before, left.EndedBefore)
	if index <= h.meta.through || index <= h.gapped {
		return // replayed
	}
	now := time.Now()
	for _, a := range left.Jobs {
		cost := a.Cost()
		h.queue = append(h.queue, waiting{index: index, job: a, cost: cost, since: now})
		h.pending[a.ID()] = a
		h.bytes += cost
	}
	h.queue = append(h.queue, waiting{index: index, since: now})
	h.rouse()
}

// Restored implements fsm.Archiver.
func (h *History) Restored(index uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// What was taken reaches to the end of the queue.
	from := max(h.meta.through, h.gapped)
	if n := len(h.queue); n > 0 {
		from = max(from, h.queue[n-1].index)
	}
	if index <= from {
		return
	}
	h.newGaps = append(h.newGaps, gap{From: Place{Index: from, Job: lastJob}, To: index})
	h.gapped = index
	h.rouse()
}

// lastJob is above all jobs.
const lastJob = ^fsm.JobID(0)

// Sync returns when the file, synced, has all that left up to a log index that was
// applied. It must be called before the log up to there is given up.
func (h *History) Sync(ctx context.Context, index uint64) error {
	h.mu.Lock()
	h.synced = max(h.synced, index)
	h.mu.Unlock()
	h.rouse()
	if err := h.await(ctx, func() bool { return h.meta.through >= index }); err != nil {
		return fmt.Errorf("writing the history up to log index %d: %w", index, err)
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
	return len(h.meta.gaps)+len(h.newGaps) > 0 || h.bad
}

// Stats gives the present numbers.
func (h *History) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Stats{
		Jobs: h.meta.jobs, Bytes: h.meta.bytes, FileBytes: h.file.size(), Pending: len(h.pending), PendingBytes: h.bytes,
		Through: h.meta.through, Incomplete: h.incompleteLocked(), Expired: h.expired.Load(), Damaged: h.asides.Load(),
		Fetched: h.fetched.Load(), Scrubbed: h.scrubbed.Load(), Scrubs: h.scrubs.Load(), WriteFailures: h.failures.Load(),
	}
	if len(h.queue) > 0 {
		s.Lag = time.Since(h.queue[0].since)
	}
	return s
}

// blame notes that the file is damaged, if that is what an error says. It is set
// aside by the writer.
func (h *History) blame(err error) {
	if !isDamaged(err) {
		return
	}
	h.mu.Lock()
	h.bad = true
	h.mu.Unlock()
	h.log.Error("the history is damaged", "err", err)
	h.rouse()
}
