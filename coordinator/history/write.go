package history

import (
	"context"
	"slices"
	"time"
)

// writeRetryDelay is the pause after a failed write, mostly for lack of disk space.
const writeRetryDelay = time.Second

// writeRequest is a function that the writer must run.
type writeRequest struct {
	do   func() error
	done chan error // size 1: the caller may have gone
}

// inWriter runs do in the writer's goroutine.
func (h *History) inWriter(ctx context.Context, do func() error) error {
	r := writeRequest{do: do, done: make(chan error, 1)}
	select {
	case h.requests <- r:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// write is the writer: it alone changes the file.
func (h *History) write(ctx context.Context) error {
	for {
		wait, due := h.writeDue()
		if due && ctx.Err() == nil {
			wait = 0 // requests are served also while the queue never empties
			if err := h.flush(ctx); err != nil {
				wait = writeRetryDelay
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-h.wake:
		case r := <-h.requests:
			r.done <- r.do()
		case <-timer.C:
		}
		timer.Stop()
	}
}

// writeDue reports whether there is something to write now, or how long to wait.
func (h *History) writeDue() (wait time.Duration, due bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// Jobs that are too old are dropped with the next write.
	tooMany := h.meta.jobs > h.cfg.MaxJobs || h.meta.bytes > h.cfg.MaxBytes
	switch {
	case h.damaged, len(h.newGaps) > 0, h.syncTarget > h.meta.completeTo, h.pendingBytes >= h.cfg.BatchBytes, tooMany, h.moreExpired:
		return 0, true
	case len(h.queue) == 0:
		return time.Hour, false
	}
	left := h.cfg.WriteDelay - time.Since(h.queue[0].since)
	return max(left, time.Millisecond), left <= 0
}

// flush writes one batch of the queue.
func (h *History) flush(ctx context.Context) error {
	h.mu.Lock()
	damaged := h.damaged
	h.mu.Unlock()
	var err error
	if damaged {
		err = h.replaceFile()
	}
	if err == nil {
		err = h.writeBatch()
	}
	if err != nil && ctx.Err() == nil {
		h.failures.Add(1)
		h.log.ErrorContext(ctx, "history write failed", "err", err)
		h.checkDamage(err)
	}
	return err
}

// replaceFile quarantines the damaged file and starts a new one, in which all that
// the old one had is a gap.
func (h *History) replaceFile() error {
	if err := h.file.restart(); err != nil {
		return err
	}
	h.logQuarantine(nil)
	h.mu.Lock()
	defer h.mu.Unlock()
	m := meta{completeTo: h.meta.completeTo, expireBefore: h.meta.expireBefore}
	if m.completeTo > 0 {
		m.gaps = h.gapsLocked(gap{To: m.completeTo})
	}
	err := h.file.update(m.store)
	if err == nil {
		h.meta, h.damaged = m, false
		if h.importing != nil {
			h.toImport, h.importRead = h.importing.jobs, false
		}
		h.signalLocked()
	}
	return err
}

// A batch is what one transaction writes.
type batch struct {
	queued  []queued
	records []encoded
	gaps    int  // of newGaps
	next    meta // after the transaction
}

func (h *History) writeBatch() error {
	b := h.nextBatch()
	size, memory, rest := 0, new(arena), new(parts)
	h.encoder.begin()
	for _, q := range b.queued {
		if q.job == nil {
			b.next.completeTo = max(b.next.completeTo, q.index)
			continue
		}
		e, err := h.encoder.encode(q, memory, rest, h.file)
		if err != nil {
			return err
		}
		b.records = append(b.records, e)
		size += int(e.cost) //nolint:gosec // far below 2^63
	}
	limit := 2*len(b.records) + 1000
	expired, err := h.store(&b.next, rest, b.records, memory, limit)
	if err != nil {
		return err
	}
	h.batchWritten(&b, expired == limit)
	h.file.touched(size)
	return nil
}

// nextBatch copies a batch from the queue, where it stays until it is written.
func (h *History) nextBatch() (b batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b.next, b.gaps = h.meta, len(h.newGaps)
	b.next.expireBefore = max(b.next.expireBefore, h.expireBefore)
	b.next.gaps = slices.Concat(h.meta.gaps, h.newGaps)
	size := 0
	for _, q := range h.queue {
		if size >= h.cfg.BatchBytes {
			break
		}
		b.queued = append(b.queued, q)
		size += q.cost
	}
	if len(b.queued) == len(h.queue) {
		// Everything that was applied is in the batch.
		b.next.completeTo = max(b.next.completeTo, h.syncTarget, h.gapEnd)
	}
	return b
}

// batchWritten drops from memory what is in the file now.
func (h *History) batchWritten(b *batch, moreExpired bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, q := range b.queued {
		if q.job != nil && h.pending[q.job.ID()] == q.job {
			delete(h.pending, q.job.ID())
		}
		h.pendingBytes -= q.cost
	}
	clear(h.queue[:len(b.queued)])
	h.queue = h.queue[len(b.queued):]
	if len(h.queue) == 0 {
		h.queue = nil // release the memory
	}
	h.newGaps = h.newGaps[b.gaps:]
	h.meta, h.moreExpired = b.next, moreExpired
	h.signalLocked()
}
