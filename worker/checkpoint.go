package worker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	directoryFormat = dtaskv1.CheckpointFormat_CHECKPOINT_FORMAT_DIRECTORY
	dataFormat      = dtaskv1.CheckpointFormat_CHECKPOINT_FORMAT_DATA
)

// maxPackTries is how often a directory is read that changes while it is read.
const maxPackTries = 5

// unsavedSuffix is the suffix of the file beside a checkpoint directory that
// could not be saved elsewhere. The file contains the number of the attempt
// that left the directory.
const unsavedSuffix = ".unsaved"

// checkpointer saves the checkpoint directory of one attempt: on request, at a
// bounded rate, and at the attempt's end. Only one goroutine may call request,
// and finish after it.
type checkpointer struct {
	w   *Worker
	a   *attempt
	dir string

	requests  chan struct{} // size 1: several requests are combined
	done      chan struct{} // closed by finish
	saving    sync.WaitGroup
	requested bool // request was called at least once

	// The rest belongs to the goroutine that saves, and to finish after it.
	pending bool // a request has not been carried out
	last    time.Time
	sum     []byte // of the last saved checkpoint
	warned  bool
}

func (w *Worker) newCheckpointer(a *attempt, dir string) *checkpointer {
	return &checkpointer{w: w, a: a, dir: dir, requests: make(chan struct{}, 1), done: make(chan struct{})}
}

// request requests a checkpoint: the directory is consistent now. It never
// blocks.
func (c *checkpointer) request() {
	signal(c.requests)
	if !c.requested {
		c.requested = true
		c.saving.Go(c.run)
	}
}

// run saves on request until finish is called.
func (c *checkpointer) run() {
	for {
		select {
		case <-c.requests:
		case <-c.done:
			return
		}
		c.pending = true
		if !c.pause() {
			return
		}
		c.pending, c.last = false, time.Now()
		result, sum := c.save()
		if result == nil {
			continue
		}
		select {
		case err := <-result:
			if err != nil {
				c.warn(err)
				continue
			}
			c.sum = sum
		case <-c.done:
			return
		}
	}
}

// pause waits until the next checkpoint may be saved; false if finish is called
// first.
func (c *checkpointer) pause() bool {
	wait := c.w.cfg.CheckpointInterval - time.Since(c.last)
	if c.last.IsZero() || wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.done:
		return false
	}
}

// finish stops the saving. Unless the attempt needs no further checkpoint, it
// saves a last one, if the attempt never requested any or its last request was
// not carried out.
func (c *checkpointer) finish(needed bool) {
	close(c.done)
	c.saving.Wait()
	select {
	case <-c.requests:
		c.pending = true
	default:
	}
	if needed && (c.pending || !c.requested) {
		_, _ = c.save() // sent before the outcome, and answered with it
	}
}

// save packs the directory and queues the checkpoint. The channel receives the
// result; it is nil if nothing was queued.
func (c *checkpointer) save() (result <-chan error, sum []byte) {
	m, sum, err := c.pack()
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && bytes.Equal(sum, c.sum):
		return nil, nil // removed because it was empty, or unchanged
	case err != nil:
		if errors.Is(err, errTooLarge) {
			c.markUnsaved()
		}
		c.warn(err)
		return nil, nil
	}
	return c.w.attempts.save(c.a, m), sum
}

// pack builds a message from the directory.
func (c *checkpointer) pack() (m *dtaskv1.Checkpoint, sum []byte, err error) {
	m = &dtaskv1.Checkpoint{Format: directoryFormat, Number: c.w.attempts.nextCheckpoint(c.a)}
	for range maxPackTries {
		s := newSpill(c.w.store, storeDir(c.w.fence.clusterID(), c.a.ref), c.a.ref.attempt, m.GetNumber())
		if err = pack(s, c.dir, c.w.userOf(c.a)); err == nil {
			m.File, err = s.publish()
		}
		s.discard()
		if err == nil {
			sum = s.sum.Sum(nil)
			m.Data, m.Size = s.data, s.size
			if m.GetFile() != "" {
				m.Sha256 = sum
			}
			return m, sum, nil
		}
		if !errors.Is(err, errDirChanged) {
			break
		}
	}
	return nil, nil, err
}

// markUnsaved records that only this worker has the newest checkpoint.
func (c *checkpointer) markUnsaved() {
	number := strconv.FormatUint(uint64(c.a.ref.attempt), 10)
	if err := os.WriteFile(c.dir+unsavedSuffix, []byte(number), 0o600); err != nil {
		c.w.log.Warn("marking an unsaved checkpoint failed", c.a.attrs(), slog.Any("err", err))
	}
}

// warn reports the first time that a checkpoint was not saved.
func (c *checkpointer) warn(err error) {
	if c.warned {
		return
	}
	c.warned = true
	c.w.log.Warn("checkpoint not saved; it stays on this worker", c.a.attrs(), slog.Any("err", err))
	c.w.attempts.noteText(c.a, "checkpoint stays on this worker: "+err.Error())
}

// finishCheckpoints stops the saving of an attempt that has ended with an
// outcome.
func (w *Worker) finishCheckpoints(a *attempt, outcome *dtaskv1.Outcome) {
	c := a.checkpointer.Load()
	if c == nil {
		return
	}
	cause := a.ctx.causeAt(time.Now())
	ok := succeeded(outcome) && cause == nil
	c.finish(!ok && !a.savedData.Load() && !isAny(cause, ErrCancelled, ErrSuperseded))
}

// restore restores the checkpoint directory for the attempt.
func (w *Worker) restore(a *attempt) error {
	c := a.assignment.Extras.GetCheckpoint()
	if c.GetFormat() != directoryFormat {
		return nil
	}
	dir := w.dirs.checkpoint(w.fence.clusterID(), a.ref)
	if unsavedBy(dir) > c.GetAttempt().GetAttempt() {
		return nil // the directory here is newer, and could not be saved
	}
	if err := w.dirs.make(filepath.Dir(dir)); err != nil {
		return err
	}
	fresh := dir + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("restoring checkpoint: %w", err)
	}
	into := func(r io.Reader) error { return unpack(r, fresh, w.userOf(a)) }
	var err error
	if c.GetFile() != "" {
		err = w.store.read(c.GetFile(), c.GetSize(), c.GetSha256(), into)
	} else {
		err = into(bytes.NewReader(c.GetData()))
	}
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err == nil {
		err = os.Rename(fresh, dir)
	}
	if err != nil {
		_ = os.RemoveAll(fresh) // the first error matters
		return fmt.Errorf("restoring checkpoint: %w", err)
	}
	return nil
}

// unsavedBy returns the attempt that left a directory that could not be saved;
// 0 if none.
func unsavedBy(dir string) uint32 {
	text, _ := os.ReadFile(dir + unsavedSuffix) //nolint:gosec // in the worker's own directory; usually missing
	n, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	return uint32(n)
}

// discardCheckpoints removes the checkpoints of tasks that have completed.
func (w *Worker) discardCheckpoints(completed []*attempt) {
	for _, a := range completed {
		cluster := w.fence.clusterID()
		dir := w.dirs.checkpoint(cluster, a.ref)
		_ = os.Remove(dir + unsavedSuffix) // usually missing
		if err := errors.Join(remove(dir), w.store.remove(storeDir(cluster, a.ref))); err != nil {
			w.log.Warn("removing a checkpoint failed", a.attrs(), slog.Any("err", err))
		}
	}
}
