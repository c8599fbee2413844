package history

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/time/rate"

	"github.com/dtask/dtask/fsm"
)

// fetchBatch is how many bytes are fetched between two transactions.
const fetchBatch = 4 << 20

// fetch is the fetcher: it fills gaps from other replicas.
func (h *History) fetch(ctx context.Context) error {
	limit := rate.NewLimiter(rate.Limit(h.cfg.FetchRate), max(h.cfg.FetchRate, 2*partSize))
	for ctx.Err() == nil {
		g, ok := h.firstGap()
		if ok && h.fill(ctx, g, limit) {
			continue
		}
		var err error
		if ok {
			err = rest(ctx, h.cfg.FetchEvery)
		} else {
			err = h.await(ctx, func() bool { return len(h.meta.gaps) > 0 })
		}
		if err != nil {
			return nil //nolint:nilerr // it is over
		}
	}
	return nil
}

func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *History) firstGap() (g gap, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.meta.gaps) == 0 {
		return gap{}, false
	}
	return h.meta.gaps[0], true
}

// fill asks all sources for what is missing, until one has all of it. If every member of
// the cluster has answered and none has, there is no more to be had than what they
// gave: the gap is closed, and it is said what may be lost.
func (h *History) fill(ctx context.Context, g gap, limit *rate.Limiter) bool {
	sources, all := h.cfg.Sources(ctx)
	for _, s := range sources {
		f := fetching{h: h, gap: g, limit: limit}
		complete, err := s.Fetch(ctx, g.From, g.To, func(p Piece, complete bool) error { return f.take(ctx, p, complete) })
		if err == nil {
			err = f.store(ctx, complete, true)
		}
		switch {
		case err != nil:
			all = false
			if ctx.Err() == nil {
				h.log.WarnContext(ctx, "missing history could not be fetched from a replica", "err", err)
			}
		case complete:
			h.log.InfoContext(ctx, "missing history was fetched", "jobs", f.jobs, "to", g.To)
			return true
		}
	}
	if !all || ctx.Err() != nil {
		return false
	}
	return h.settle(ctx, g, limit)
}

// settle closes a gap that no replica can fill: what can be read of a file that was set
// aside is taken from there.
func (h *History) settle(ctx context.Context, g gap, limit *rate.Limiter) bool {
	f, old := fetching{h: h, gap: g, limit: limit}, h.file.aside()
	_, err := old.Fetch(ctx, g.From, g.To, func(p Piece, complete bool) error { return f.take(ctx, p, complete) })
	if err == nil {
		err = f.store(ctx, true, true)
	}
	if err != nil {
		if ctx.Err() == nil {
			h.log.WarnContext(ctx, "what can be read of the damaged history could not be kept", "err", err)
		}
		return false
	}
	h.log.ErrorContext(ctx, "no replica has all of the history that is missing: jobs that left the state in these log entries may be lost",
		"from", g.From.Index, "to", g.To, "kept_of_damaged_file", f.jobs, "unreadable", old.unreadable)
	return true
}

// fetching is what comes from one source.
type fetching struct {
	h     *History
	gap   gap
	limit *rate.Limiter

	parts [][2][]byte
	jobs  int
	list  []encoded
	last  Place
	bytes int // since the last transaction
	long  int // bytes of the parts of the job that is coming
}

// take takes a piece.
func (f *fetching) take(ctx context.Context, p Piece, complete bool) error {
	if err := f.limit.WaitN(ctx, min(len(p.Data)+1, f.limit.Burst())); err != nil {
		return err
	}
	f.bytes += len(p.Data)
	if p.Part > 0 {
		key := partKey(p.Job, p.Part)
		f.parts = append(f.parts, [2][]byte{key, sealed(key, p.Data)})
		f.long += len(p.Data)
	} else {
		head, _, err := fsm.ReadHead(p.Data)
		if err != nil {
			return err
		}
		if head.ID != p.Job || p.Index > f.gap.To || !f.gap.From.before(p.Place) {
			return errors.New("a replica sent a job that was not asked for")
		}
		f.list = append(f.list, makeEncoded(p.Place, p.Parts, p.Data, &head, f.long, nil))
		f.last, f.long = p.Place, 0
	}
	if f.bytes < fetchBatch {
		return nil
	}
	return f.store(ctx, complete, false)
}

func (p Place) before(q Place) bool { return p.Index < q.Index || p.Index == q.Index && p.Job < q.Job }

// store has the writer store what came. If it comes from a source that has all, the gap
// begins behind it from now on, and is closed with the last of it.
func (f *fetching) store(ctx context.Context, complete, done bool) error {
	err := f.h.byWriter(ctx, func() error { return f.h.storeFetched(f, complete, done) })
	if err == nil {
		f.jobs += len(f.list)
		f.parts, f.list, f.bytes = nil, nil, 0
	}
	return err
}

// order is something that the writer shall do.
type order struct {
	do   func() error
	done chan error // size 1
}

// byWriter runs something in the writer's goroutine.
func (h *History) byWriter(ctx context.Context, do func() error) error {
	o := order{do: do, done: make(chan error, 1)}
	select {
	case h.orders <- o:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *History) storeFetched(f *fetching, complete, done bool) error {
	h.mu.Lock()
	next := h.meta
	next.gaps = append([]gap(nil), h.meta.gaps...)
	h.mu.Unlock()
	if len(next.gaps) == 0 || next.gaps[0].To != f.gap.To {
		return errors.New("what is missing has changed meanwhile")
	}
	expired := 0
	err := h.file.update(func(tx *bbolt.Tx) (err error) {
		parts := tx.Bucket(bucketParts)
		for _, kv := range f.parts {
			if err := parts.Put(kv[0], kv[1]); err != nil {
				return err
			}
		}
		if err := put(tx, &next, f.list, nil); err != nil {
			return err
		}
		switch {
		case complete && done:
			next.gaps = next.gaps[1:]
		case complete && len(f.list) > 0:
			next.gaps[0].From = f.last
		}
		if expired, err = h.expire(tx, &next, 2*len(f.list)); err != nil {
			return err
		}
		return next.store(tx)
	})
	if err != nil {
		h.blame(err)
		return err
	}
	h.expired.Add(uint64(expired)) //nolint:gosec // not negative
	h.fetched.Add(uint64(len(f.list)))
	h.mu.Lock()
	h.meta = next
	h.tell()
	h.mu.Unlock()
	h.file.used(f.bytes)
	return nil
}

// Serve calls send with the pieces of all jobs at places after a given one, with log
// indexes up to to, in order, for another replica; complete as for Source. It
// returns the first error of send as it is. No transaction is open while it sends.
func (h *History) Serve(ctx context.Context, after Place, to uint64, send func(p Piece, complete bool) error) (complete bool, err error) {
	if err := h.Sync(ctx, min(to, h.applied())); err != nil {
		return false, err
	}
	complete = h.completeFor(after, to)
	for {
		var list []Piece
		err := h.view(func(tx *bbolt.Tx) (err error) {
			list, err = pieces(tx, after, to)
			return err
		})
		if err != nil {
			return false, err
		}
		for _, p := range list {
			if p.Part == 0 && p.Parts > 0 {
				if err := h.serveParts(p, complete, send); err != nil {
					return false, err
				}
			}
			if err := send(p, complete); err != nil {
				return false, err
			}
			after = p.Place
		}
		if len(list) == 0 {
			// It may have been set aside meanwhile.
			return complete && h.completeFor(after, to), ctx.Err()
		}
	}
}

// completeFor reports whether a range of the log is whole here.
func (h *History) completeFor(after Place, to uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bad || h.meta.through < to {
		return false
	}
	for _, g := range append(append([]gap(nil), h.meta.gaps...), h.newGaps...) {
		if g.From.Index < to && g.To > after.Index {
			return false
		}
	}
	return true
}

// applied is the last log index that this history was told of.
func (h *History) applied() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := max(h.meta.through, h.gapped)
	if n := len(h.queue); n > 0 {
		at = max(at, h.queue[n-1].index)
	}
	return at
}

// pieces reads some jobs, without their parts.
func pieces(tx *bbolt.Tx, after Place, to uint64) (list []Piece, err error) {
	jobs, c, size := tx.Bucket(bucketJobs), tx.Bucket(bucketOrder).Cursor(), 0
	from := orderKey(after)
	for k, _ := c.Seek(from); k != nil && size < fetchBatch/4; k, _ = c.Next() {
		p, ok := readOrderKey(k)
		if !ok || p.Index > to {
			break
		}
		if !after.before(p) {
			continue
		}
		key := jobKey(p.Job)
		s, err := readValue(key, jobs.Get(key))
		if err != nil {
			return nil, err
		}
		list = append(list, Piece{Place: p, Parts: s.parts, Data: append([]byte(nil), s.record...)})
		size += len(s.record)
	}
	return list, nil
}

func (h *History) serveParts(p Piece, complete bool, send func(p Piece, complete bool) error) error {
	for part := uint32(1); part <= p.Parts; part++ {
		var b []byte
		err := h.view(func(tx *bbolt.Tx) error {
			if tx.Bucket(bucketJobs).Get(jobKey(p.Job)) == nil {
				return nil // it expired meanwhile
			}
			found, err := readPart(tx, p.Job, part)
			b = append([]byte(nil), found...)
			return err
		})
		if err != nil || b == nil {
			return err
		}
		if err := send(Piece{Place: p.Place, Part: part, Data: b}, complete); err != nil {
			return err
		}
	}
	return nil
}
