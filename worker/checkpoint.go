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

// packTries is how often a folder that changes while it is read is read again.
const maxPackTries = 5

// keptSuffix names the file beside a checkpoint folder that says that it could
// not be saved elsewhere, and by which attempt it was left.
const unsavedSuffix = ".kept"

// checkpointer saves the checkpoint folder of one attempt: when it is asked to,
// one at a time and not too often, and at the attempt's end. ask may be called
// by one goroutine; finish after it.
type checkpointer struct {
	w   *Worker
	a   *attempt
	dir string

	requests  chan struct{} // size 1: several asked for are one
	done      chan struct{} // closed by finish
	saving    sync.WaitGroup
	requested bool // it was asked at least once

	// The rest belongs to the goroutine that saves, and to finish after it.
	pending bool // was asked and not done
	last    time.Time
	sum     []byte // of the last that was saved
	warned  bool
}

func (w *Worker) newCheckpointer(a *attempt, dir string) *checkpointer {
	return &checkpointer{w: w, a: a, dir: dir, requests: make(chan struct{}, 1), done: make(chan struct{})}
}

// ask says that the folder is consistent now. It never blocks.
func (c *checkpointer) request() {
	select {
	case c.requests <- struct{}{}:
	default: // a token is there already
	}
	if !c.requested {
		c.requested = true
		c.saving.Go(c.run)
	}
}

// run saves whenever it is asked to, until the attempt is over.
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
		done, sum := c.save()
		if done == nil {
			continue
		}
		select {
		case err := <-done:
			if err == nil {
				c.sum = sum
			} else {
				c.warn(err)
			}
		case <-c.done:
			return
		}
	}
}

// pause waits until the next may be taken; false if the attempt is over first.
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

// finish ends the saving. Of an attempt that did not end well it takes one more,
// unless the last that it asked for was taken.
func (c *checkpointer) finish(well bool) {
	close(c.done)
	c.saving.Wait()
	select {
	case <-c.requests:
		c.pending = true
	default:
	}
	if !well && (c.pending || !c.requested) {
		_, _ = c.save() // goes out before the outcome, and is answered with it
	}
}

// save packs the folder and puts it on its way. It gives the answer to come; nil
// if there is nothing to wait for.
func (c *checkpointer) save() (answer <-chan error, sum []byte) {
	m, sum, err := c.pack()
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && bytes.Equal(sum, c.sum):
		return nil, nil // removed since it was empty, or nothing new
	case errors.Is(err, errTooLarge):
		c.markUnsaved()
		c.warn(err)
		return nil, nil
	case err != nil:
		c.warn(err)
		return nil, nil
	}
	return c.w.attempts.save(c.a, m), sum
}

// pack makes a message of the folder.
func (c *checkpointer) pack() (m *dtaskv1.Checkpoint, sum []byte, err error) {
	m = &dtaskv1.Checkpoint{Format: directoryFormat, Number: c.w.attempts.nextCheckpoint(c.a)}
	for range maxPackTries {
		s := newSpill(c.w.store, storeDir(c.w.fence.clusterID(), c.a.ref), c.a.ref.attempt, m.GetNumber())
		if err = pack(s, c.dir); err == nil {
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

// keep notes that this worker alone has the newest checkpoint.
func (c *checkpointer) markUnsaved() {
	number := strconv.FormatUint(uint64(c.a.ref.attempt), 10)
	if err := os.WriteFile(c.dir+unsavedSuffix, []byte(number), 0o600); err != nil {
		c.w.log.Warn("noting that a checkpoint stays here", c.a.attrs(), slog.Any("error", err))
	}
}

// warn says once that a checkpoint was not saved.
func (c *checkpointer) warn(err error) {
	if c.warned {
		return
	}
	c.warned = true
	c.w.log.Warn("a checkpoint stays on this worker", c.a.attrs(), slog.Any("error", err))
	c.w.attempts.remark(c.a, "checkpoint stays on this worker: "+err.Error())
}

// finishCheckpoints ends the saving of an attempt that has ended with an outcome.
func (w *Worker) finishCheckpoints(a *attempt, outcome *dtaskv1.Outcome) {
	c := a.checkpointer.Load()
	if c == nil {
		return
	}
	cause := a.ctx.causeAt(time.Now())
	well := outcome.GetKind() == dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED && cause == nil
	c.finish(well || a.savedData.Load() || isAny(cause, ErrCancelled, ErrSuperseded))
}

// restore puts the checkpoint folder into the state in which the attempt shall
// find it.
func (w *Worker) restore(a *attempt) error {
	c := a.assignment.Extras.GetCheckpoint()
	if c.GetFormat() != directoryFormat {
		return nil
	}
	dir := w.dirs.checkpoint(w.fence.clusterID(), a.ref)
	if unsavedBy(dir) > c.GetAttempt().GetAttempt() {
		return nil // what is here is newer, and could not be saved
	}
	if err := w.dirs.make(filepath.Dir(dir)); err != nil {
		return err
	}
	fresh := dir + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("making room for the checkpoint: %w", err)
	}
	into := func(r io.Reader) error { return unpack(r, fresh) }
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
		_ = os.RemoveAll(fresh) // the error says more
		return fmt.Errorf("its checkpoint: %w", err)
	}
	return nil
}

// keptBy is the attempt that left a folder which could not be saved; 0 if none.
func unsavedBy(dir string) uint32 {
	text, err := os.ReadFile(dir + unsavedSuffix) //nolint:gosec // in the worker's own folder
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// discardCheckpoints removes the checkpoints of tasks that have completed.
func (w *Worker) discardCheckpoints(completed []*attempt) {
	for _, a := range completed {
		cluster := w.fence.clusterID()
		dir := w.dirs.checkpoint(cluster, a.ref)
		_ = os.Remove(dir + unsavedSuffix) // there is seldom one
		if err := errors.Join(w.dirs.remove(dir), w.store.remove(storeDir(cluster, a.ref))); err != nil {
			w.log.Warn("removing a checkpoint", a.attrs(), slog.Any("error", err))
		}
	}
}
