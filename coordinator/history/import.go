package history

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/time/rate"

	"github.com/dtask/dtask/fsm"
)

// importRate is how many bytes are imported per second: all jobs can be read meanwhile, and
// the disk and a processor are needed for the work of the cluster.
const importRate = 8 << 20

// openImport opens the import file, if there is one. One that is not needed any more is
// removed, and a damaged one is quarantined: its jobs are a gap like any other.
func (h *History) openImport() error {
	path := h.cfg.Path + ImportSuffix
	f, err := openImport(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case isDamaged(err):
		h.log.Error("quarantined damaged file of jobs to import; fetching them from other replicas", "path", path+quarantineSuffix, "err", err)
		return os.Rename(path, path+quarantineSuffix)
	case err != nil:
		return err
	}
	h.importing = f
	g, needed := h.importGapLocked()
	if !needed {
		// A new history file has no gap before the state is restored from a snapshot.
		if h.meta.completeTo >= f.to {
			h.importing = nil
			return errors.Join(f.close(), os.Remove(path))
		}
		h.toImport = f.jobs
		return nil
	}
	_, h.toImport, err = f.cursor(g.From)
	return err
}

// importGapLocked returns the gap that the import file fills; ok is false without one.
func (h *History) importGapLocked() (g gap, ok bool) {
	if h.importing == nil {
		return g, false
	}
	for _, gaps := range [][]gap{h.meta.gaps, h.newGaps} {
		for _, g := range gaps {
			if g.To == h.importing.to {
				return g, true
			}
		}
	}
	return g, false
}

// hasAllLocked reports whether the import file has all jobs of a gap, so that none is
// missing.
func (h *History) hasAllLocked(g gap) bool {
	return h.importing != nil && !h.importDamaged && g.To == h.importing.to
}

// gapsLocked returns a gap as two if the import file has only the beginning of it.
func (h *History) gapsLocked(g gap) []gap {
	if f := h.importing; f != nil && g.From.Index < f.to && f.to < g.To {
		return []gap{{From: g.From, To: f.to}, {From: Position{Index: f.to, Job: lastJob}, To: g.To}}
	}
	return []gap{g}
}

// currentImport returns the import file and the gap that it fills; nil without one.
func (h *History) currentImport() (*importFile, gap) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, ok := h.importGapLocked()
	if !ok {
		return nil, g
	}
	return h.importing, g
}

// lockImport is currentImport for a call that reads the file. It stays open until unlock is
// called, also if its last job is imported.
func (h *History) lockImport() (f *importFile, g gap, unlock func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, ok := h.importGapLocked()
	if !ok {
		return nil, g, func() {}
	}
	// This does not wait: what is closed is not h.importing.
	h.importing.reading.RLock()
	return h.importing, g, h.importing.reading.RUnlock
}

// readImport calls read with a job that is to be imported; ok is false if it is another job.
// Like pendingJob, it must be called before the history file is read.
func (h *History) readImport(id fsm.JobID, read func(r *importRecord) error) (ok bool, err error) {
	f, g, unlock := h.lockImport()
	if f == nil {
		return false, nil
	}
	defer unlock()
	r, ok, err := f.find(id)
	if err == nil && (!ok || !g.From.before(r.Position)) {
		return false, nil
	}
	if err == nil {
		err = read(&r)
	}
	if err != nil {
		return false, h.importFailed(err)
	}
	return true, nil
}

// importFailed handles an error of reading the import file.
func (h *History) importFailed(err error) error {
	if isDamaged(err) {
		h.mu.Lock()
		known := h.importDamaged
		h.importDamaged = true
		h.mu.Unlock()
		if !known {
			h.log.Error("file of jobs to import is damaged; fetching what is missing from other replicas", "path", h.cfg.Path+ImportSuffix, "err", err)
		}
	}
	return fmt.Errorf("reading history: %w", err)
}

// importJobs fills the gap of the import file, and reports whether the gap is closed. If some
// jobs can't be read, it stays open, and missing is true: other replicas may have them.
func (h *History) importJobs(ctx context.Context, f *importFile, g gap) (closed, missing bool) {
	h.mu.Lock()
	read := h.importRead
	h.mu.Unlock()
	if read {
		return false, true
	}
	select {
	case <-h.cfg.ImportAfter:
	case <-ctx.Done():
		return false, false
	}
	limit := rate.NewLimiter(rate.Limit(h.cfg.ImportRate), h.cfg.ImportRate)
	limit.AllowN(time.Now(), h.cfg.ImportRate) // no burst at the start of a cluster
	fetched, start := fetcher{h: h, gap: g, limit: limit, imports: true}, time.Now()
	complete, err := fetched.fetch(ctx, importSource{f, h})
	if err == nil {
		err = fetched.store(ctx, complete, true)
	}
	switch {
	case ctx.Err() != nil:
		return false, false
	case err != nil:
		h.log.WarnContext(ctx, "importing jobs failed", "err", err)
		return false, false
	case complete:
		h.log.InfoContext(ctx, "imported the history of a backup", "jobs", fetched.jobs, "took", time.Since(start).Round(time.Millisecond))
		return true, false
	}
	h.mu.Lock()
	h.importRead = h.restLocked(g) == fetched.gap // unless the history file was replaced meanwhile
	h.mu.Unlock()
	return false, true
}

// importSource is an import file as a source.
type importSource struct {
	*importFile

	h *History
}

// Fetch implements Source. It passes on what can be read, and is complete if that is all.
func (s importSource) Fetch(ctx context.Context, after Position, to uint64, take func(c Chunk, complete bool) error) (complete bool, err error) {
	c, _, err := s.cursor(after)
	if err != nil {
		return false, s.h.importFailed(err)
	}
	for complete = !c.skipped; ; {
		chunk, err := c.next()
		switch {
		case isDamaged(err):
			complete = false
			_ = s.h.importFailed(err) // logs it
			err = c.skipJob()
		case err == nil && (chunk.Data == nil || chunk.Index > to):
			return complete, ctx.Err()
		case err == nil:
			err = take(chunk, complete)
		}
		if err != nil {
			return false, err
		}
	}
}

// endImport removes the import file once its gap is closed. A damaged one is kept.
func (h *History) endImport(closed gap) {
	h.mu.Lock()
	f, damaged := h.importing, h.importDamaged
	if f == nil || f.to != closed.To {
		h.mu.Unlock()
		return
	}
	h.importing, h.importDamaged, h.importRead, h.toImport = nil, false, false, 0
	h.mu.Unlock()
	path := h.cfg.Path + ImportSuffix
	err := f.close()
	if damaged {
		err = errors.Join(err, os.Rename(path, path+quarantineSuffix))
	} else {
		err = errors.Join(err, os.Remove(path))
	}
	if err != nil {
		h.log.Warn("file of imported jobs not removed; the next start removes it", "path", path, "err", err)
	}
}
