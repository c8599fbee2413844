package history

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/time/rate"

	"github.com/dtask/dtask/fsm"
)

// scrubBatch is how many bytes are looked at in one transaction.
const scrubBatch = 256 << 10

// scrub looks at all of the file now and then, so that damage is found while there
// are others to fetch from, and not when somebody asks for the job.
func (h *History) scrub(ctx context.Context) error {
	limit := rate.NewLimiter(rate.Limit(h.cfg.ScrubRate), max(h.cfg.ScrubRate, scrubBatch))
	for wait := h.cfg.ScrubFirst; rest(ctx, wait) == nil; {
		began := time.Now()
		jobs, err := h.scrubAll(ctx, limit)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it is over
		case err == nil:
			h.scrubs.Add(1)
			h.log.InfoContext(ctx, "the history was checked", "jobs", jobs, "took", time.Since(began).Round(time.Millisecond))
		}
		// What is damaged was said where it was found.
		wait = max(h.cfg.ScrubEvery-time.Since(began), h.cfg.ScrubEvery/10)
	}
	return nil
}

// scrubAll looks at each job, and gives how many there were.
func (h *History) scrubAll(ctx context.Context, limit *rate.Limiter) (jobs int, err error) {
	s := scrubber{limit: limit}
	for more := true; more; {
		if err := h.view(func(tx *bbolt.Tx) (err error) {
			more, err = s.batch(tx)
			return err
		}); err != nil {
			return s.jobs, err
		}
		// What was looked at counts as memory until it is given back.
		if err := h.byWriter(ctx, func() error { h.file.used(s.bytes); return nil }); err != nil {
			return s.jobs, err
		}
		h.scrubbed.Add(uint64(s.bytes)) //nolint:gosec // not negative
		if err := limit.WaitN(ctx, min(s.bytes, limit.Burst())); err != nil {
			return s.jobs, err
		}
	}
	return s.jobs, nil
}

// scrubber is one way through the file, in the order in which jobs left.
type scrubber struct {
	limit *rate.Limiter
	after Place
	part  uint32 // of the job behind after: parts that were looked at
	long  int    // their bytes
	jobs  int
	bytes int // of the last batch
}

// batch looks at some jobs.
func (s *scrubber) batch(tx *bbolt.Tx) (more bool, err error) {
	s.bytes = 0
	c := tx.Bucket(bucketOrder).Cursor()
	k, v := c.Seek(orderKey(s.after))
	for ; k != nil; k, v = c.Next() {
		p, ok := readOrderKey(k)
		if !ok || len(v) != 8 {
			return false, damaged("the place %x in the order is none", k)
		}
		if !s.after.before(p) {
			continue
		}
		if s.bytes >= scrubBatch {
			return true, nil
		}
		whole, err := s.job(tx, p, binary.BigEndian.Uint64(v))
		if err != nil || !whole {
			return err == nil, err
		}
		s.after, s.part, s.long = p, 0, 0
		s.jobs++
	}
	return false, counted(tx)
}

// counted looks whether there are as many jobs as the file says.
func counted(tx *bbolt.Tx) error {
	m, err := loadMeta(tx)
	if err != nil {
		return err
	}
	n := uint64(0)
	for range entries(tx.Bucket(bucketOrder)) {
		n++
	}
	if n != m.jobs {
		return damaged("it has %d jobs where it counts %d", n, m.jobs)
	}
	return nil
}

// job looks at a job, its parts and its posts; whole is false if some parts are left for
// the next batch.
func (s *scrubber) job(tx *bbolt.Tx, p Place, size uint64) (whole bool, err error) {
	key := jobKey(p.Job)
	value := tx.Bucket(bucketJobs).Get(key)
	if value == nil {
		return false, damaged("job %d is in the order and not there", p.Job)
	}
	one, err := readValue(key, value)
	if err != nil {
		return false, err
	}
	head, err := headOf(key, one)
	if err != nil {
		return false, err
	}
	if one.index != p.Index {
		return false, damaged("job %d has another place than in the order", p.Job)
	}
	s.bytes += len(key) + len(value)
	for s.part < one.parts {
		if s.bytes >= scrubBatch {
			return false, nil
		}
		b, err := readPart(tx, p.Job, s.part+1)
		if err != nil {
			return false, err
		}
		s.bytes, s.long = s.bytes+len(b), s.long+len(b)
		s.part++
	}
	if size != costOf(&head, len(value), s.long) {
		return false, damaged("job %d has another size than in the order", p.Job)
	}
	if err := timed(tx, &head); err != nil {
		return false, err
	}
	return true, posted(tx, &head)
}

// posted looks whether the index has all posts of a job.
func posted(tx *bbolt.Tx, head *fsm.Head) error {
	c := tx.Bucket(bucketIndex).Cursor()
	for _, w := range words(head) {
		p := makePost(w, head.ID)
		k, v := seekBack(c, p[:])
		l, ok := readList(p.group(), k, v)
		if ok && !slices.IsSorted(l.ids) {
			return damaged("a list of the index, at %x, is not in order", binary.BigEndian.Uint64(k))
		}
		if _, there := slices.BinarySearch(l.ids, p.low()); !there {
			return damaged("job %d is not in the index", head.ID)
		}
	}
	return nil
}
