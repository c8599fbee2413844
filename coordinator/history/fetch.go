package history

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/dtask/dtask/fsm"
)

// fetchRate is how many bytes are fetched per second.
const fetchRate = 32 << 20

// fetch is the fetcher: it fills gaps from other replicas until ctx is done.
func (h *History) fetch(ctx context.Context) error {
	limit := rate.NewLimiter(fetchRate, fetchRate)
	for {
		var g gap
		err := h.await(ctx, func() bool {
			if len(h.meta.gaps) == 0 {
				return false
			}
			g = h.meta.gaps[0]
			return true
		})
		if err == nil && !h.fill(ctx, g, limit) {
			err = sleep(ctx, h.cfg.FetchInterval)
		}
		if err != nil {
			return nil //nolint:nilerr // the history is being closed
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fill imports a gap, or fetches it from one source after the other until one has all of it, and
// reports whether the gap is closed. If every member of the cluster answered and none
// has all, the gap is closed with what they sent and what can be salvaged.
func (h *History) fill(ctx context.Context, g gap, limit *rate.Limiter) bool {
	if f, of := h.currentImport(); f != nil && of == g {
		if closed, missing := h.importJobs(ctx, f, g); !missing {
			return closed
		}
	}
	sources, all := h.cfg.Sources(ctx)
	for _, s := range sources {
		f := fetcher{h: h, gap: h.rest(g), limit: limit}
		complete, err := f.fetch(ctx, s)
		if err == nil {
			err = f.store(ctx, complete, true)
		}
		switch {
		case err != nil:
			all = false
			if ctx.Err() == nil {
				h.log.WarnContext(ctx, "fetching missing history from a replica failed", "err", err)
			}
		case complete:
			h.log.InfoContext(ctx, "fetched missing history", "jobs", f.jobs, "to", g.To)
			return true
		}
	}
	return all && ctx.Err() == nil && h.salvage(ctx, g, limit)
}

// rest returns what is left of a gap, whose beginning may have been filled.
func (h *History) rest(g gap) gap {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.restLocked(g)
}

func (h *History) restLocked(g gap) gap {
	for _, now := range h.meta.gaps {
		if now.To == g.To {
			return now
		}
	}
	return g
}

// salvage closes a gap that no replica can fill with what can be read of the
// quarantined file.
func (h *History) salvage(ctx context.Context, g gap, limit *rate.Limiter) bool {
	f, old := fetcher{h: h, gap: h.rest(g), limit: limit}, h.file.quarantined()
	_, err := f.fetch(ctx, old)
	if err == nil {
		err = f.store(ctx, true, true)
	}
	if err != nil {
		if ctx.Err() == nil {
			h.log.WarnContext(ctx, "storing salvaged history failed", "err", err)
		}
		return false
	}
	h.log.ErrorContext(ctx, "no replica has all missing history; jobs that left the state in these log entries may be lost",
		"from", g.From.Index, "to", g.To, "salvaged", f.jobs, "unreadable", old.unreadable)
	return true
}

// fetcher receives jobs from one source.
type fetcher struct {
	h     *History
	gap   gap // what is left of it
	limit *rate.Limiter
	// imports means that the source is the import file.
	imports bool

	parts     parts
	jobs      int
	list      []encoded
	last      Position
	bytes     int      // since the last transaction
	partOf    Position // the job whose parts are arriving
	partBytes int      // of it
}

func (f *fetcher) fetch(ctx context.Context, s Source) (complete bool, err error) {
	return s.Fetch(ctx, f.gap.From, f.gap.To, func(c Chunk, complete bool) error { return f.take(ctx, c, complete) })
}

// take takes a chunk.
func (f *fetcher) take(ctx context.Context, c Chunk, complete bool) error {
	if err := f.limit.WaitN(ctx, min(len(c.Data)+1, f.limit.Burst())); err != nil {
		return err
	}
	f.bytes += len(c.Data)
	if c.Position != f.partOf || c.Number == 1 { // what came before has no head
		f.partOf, f.partBytes = c.Position, 0
	}
	if c.Number > 0 {
		f.parts.add(c.Job, c.Number, c.Data)
		f.partBytes += len(c.Data)
	} else {
		head, _, err := fsm.ReadHead(c.Data)
		if err != nil {
			return err
		}
		if head.ID != c.Job || c.Index > f.gap.To || !f.gap.From.before(c.Position) {
			return errors.New("a replica sent a job that was not requested")
		}
		e := newEncoded(c.Position, &storedRecord{parts: c.Total, data: c.Data}, &head, f.partBytes, nil)
		if head.Header.GetRun() != nil && f.partBytes >= fsm.MinTemplate {
			e.run = &head
		}
		f.list = append(f.list, e)
		f.last = c.Position
	}
	if f.bytes < f.h.cfg.FetchBytes {
		return nil
	}
	return f.store(ctx, complete, false)
}

// store has the writer store what was received. If the source is complete, the gap
// starts after it from now on, and is closed when done.
func (f *fetcher) store(ctx context.Context, complete, done bool) error {
	err := f.h.inWriter(ctx, func() error { return f.h.storeFetched(f, complete, done) })
	if err == nil {
		f.jobs += len(f.list)
		f.parts, f.list, f.bytes = parts{}, nil, 0
	}
	return err
}

func (h *History) storeFetched(f *fetcher, complete, done bool) error {
	h.mu.Lock()
	next := h.meta
	next.gaps = slices.Clone(h.meta.gaps)
	h.mu.Unlock()
	if len(next.gaps) == 0 || next.gaps[0] != f.gap {
		return errors.New("the gap has changed since the fetch started")
	}
	switch {
	case complete && done:
		next.gaps = next.gaps[1:]
	case complete && len(f.list) > 0:
		next.gaps[0].From = f.last
	}
	if _, err := h.store(&next, &f.parts, f.list, nil, 2*len(f.list)); err != nil {
		h.checkDamage(err)
		return err
	}
	if !f.imports {
		h.fetched.Add(uint64(len(f.list)))
	}
	h.mu.Lock()
	h.meta = next
	if !done {
		f.gap = next.gaps[0]
	}
	if h.importing != nil && h.importing.to == f.gap.To && complete {
		h.toImport -= min(h.toImport, uint64(len(f.list)))
	}
	h.signalLocked()
	h.mu.Unlock()
	if complete && done {
		h.endImport(f.gap)
	}
	h.file.touched(f.bytes)
	return nil
}
