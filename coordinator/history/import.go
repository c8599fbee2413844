package history

import (
	"context"
	"errors"

	"golang.org/x/time/rate"
)

// Import stores the jobs of a source that has all jobs that left the state up to a log
// index. The history must be new, and nothing may have been taken yet. After an error its
// file must not be used.
func (h *History) Import(ctx context.Context, s Source, to uint64) error {
	h.Restored(to)
	if err := h.Sync(ctx, to); err != nil {
		return err
	}
	h.mu.Lock()
	gaps := h.meta.gaps
	h.mu.Unlock()
	if len(gaps) != 1 || gaps[0].From.Index != 0 {
		return errors.New("importing history: the file is not new")
	}
	f := fetcher{h: h, gap: gap{To: to}, limit: rate.NewLimiter(rate.Inf, 1)} // nothing else uses this disk
	complete, err := f.fetch(ctx, s)
	if err == nil && !complete {
		err = errors.New("importing history: the source lacks jobs")
	}
	if err != nil {
		return err
	}
	return f.store(ctx, true, true)
}
