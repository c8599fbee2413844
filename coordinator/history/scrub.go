package history

import (
	"context"
	"encoding/binary"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/time/rate"

	"github.com/dtask/dtask/coordinator/history/format"
)

// scrubBatch is how many bytes are checked in one transaction.
const scrubBatch = 256 << 10

// scrub checks the whole file every ScrubInterval, so that damage is found while
// other replicas still have the jobs, and not when a job is read.
func (h *History) scrub(ctx context.Context) error {
	limit := rate.NewLimiter(rate.Limit(h.cfg.ScrubRate), max(h.cfg.ScrubRate, scrubBatch))
	for wait := h.cfg.ScrubDelay; sleep(ctx, wait) == nil; {
		start := time.Now()
		jobs, err := h.scrubAll(ctx, limit)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the history is being closed
		case err == nil:
			h.scrubs.Add(1)
			h.log.InfoContext(ctx, "checked history file", "jobs", jobs, "took", time.Since(start).Round(time.Millisecond))
		}
		// view has logged the damage that it found.
		wait = max(h.cfg.ScrubInterval-time.Since(start), h.cfg.ScrubInterval/10)
	}
	return nil
}

// scrubAll checks each job and returns how many there were.
func (h *History) scrubAll(ctx context.Context, limit *rate.Limiter) (jobs int, err error) {
	var s scrubber
	for more := true; more; {
		if err := h.view(func(tx *bbolt.Tx) (err error) {
			more, err = s.batch(tx)
			return err
		}); err != nil {
			return s.jobs, err
		}
		// The mapped pages count as memory of this process until they are released.
		if err := h.inWriter(ctx, func() error { h.file.touched(s.bytes); return nil }); err != nil {
			return s.jobs, err
		}
		h.scrubbed.Add(uint64(s.bytes)) //nolint:gosec // not negative
		if err := limit.WaitN(ctx, min(s.bytes, limit.Burst())); err != nil {
			return s.jobs, err
		}
	}
	return s.jobs, nil
}

// scrubber is one pass through the file, in the order in which jobs left the state. The
// templates follow.
type scrubber struct {
	after     Position
	record    storedRecord // of the job after that position, if some of its parts are checked
	part      uint32       // checked parts of that job
	partBytes int          // their size
	jobs      int
	jobsDone  bool
	templates templateScrubber
	bytes     int // of the last batch
}

// batch checks up to scrubBatch bytes.
func (s *scrubber) batch(tx *bbolt.Tx) (more bool, err error) {
	s.bytes = 0
	if !s.jobsDone {
		if more, err = s.batchOfJobs(tx); more || err != nil {
			return more, err
		}
		s.jobsDone = true
	}
	if more, err = s.templates.batch(tx, &s.bytes); more || err != nil {
		return more, err
	}
	return false, verifyCount(tx)
}

func (s *scrubber) batchOfJobs(tx *bbolt.Tx) (more bool, err error) {
	c := tx.Bucket(bucketOrder).Cursor()
	for k, v := c.Seek(s.after.key()); k != nil; k, v = c.Next() {
		p, ok := parsePosition(k)
		if !ok || len(v) != 8 {
			return false, format.Damaged("invalid position %x in the order", k)
		}
		if !s.after.before(p) {
			continue
		}
		if s.bytes >= scrubBatch {
			return true, nil
		}
		done, err := s.job(tx, p, binary.BigEndian.Uint64(v))
		if err != nil || !done {
			return err == nil, err
		}
		s.after, s.part, s.partBytes = p, 0, 0
		s.jobs++
	}
	return false, nil
}

// verifyCount checks that the file has as many jobs as its metadata states.
func verifyCount(tx *bbolt.Tx) error {
	m, err := loadMeta(tx)
	if err != nil {
		return err
	}
	n, c := uint64(0), tx.Bucket(bucketOrder).Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		n++
	}
	if n != m.jobs {
		return format.Damaged("it has %d jobs and counts %d", n, m.jobs)
	}
	return nil
}

// job checks a job, its parts and its index entry; done is false if some parts are
// left for the next batch.
func (s *scrubber) job(tx *bbolt.Tx, p Position, size uint64) (done bool, err error) {
	key := format.JobKey(p.Job)
	value := tx.Bucket(bucketJobs).Get(key)
	if value == nil {
		return false, format.Damaged("job %d is in the order but not in the file", p.Job)
	}
	record, head, err := readHead(key, value)
	if err != nil {
		return false, err
	}
	if record.index != p.Index {
		return false, format.Damaged("job %d has log index %d, and %d in the order", p.Job, record.index, p.Index)
	}
	s.bytes += len(key) + len(value)
	if s.part > 0 && !s.record.sameParts(&record) { // it was replaced meanwhile
		s.part, s.partBytes = 0, 0
	}
	s.record = storedRecord{parts: record.parts, template: record.template}
	for s.part < record.parts {
		if s.bytes >= scrubBatch {
			return false, nil
		}
		b, err := readPart(tx, p.Job, s.part+1)
		if err != nil {
			return false, err
		}
		s.bytes, s.partBytes = s.bytes+len(b), s.partBytes+len(b)
		s.part++
	}
	if want := costOf(&head, len(value), s.partBytes); size != want {
		return false, format.Damaged("job %d takes %d bytes, and %d in the order", p.Job, want, size)
	}
	if err := verifyReference(tx, &record, p.Job); err != nil {
		return false, err
	}
	return true, verifyJob(tx, &head)
}
