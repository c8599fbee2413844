package history

import (
	"encoding/binary"

	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/coordinator/history/format"
	"github.com/dtask/dtask/coordinator/history/index"
	"github.com/dtask/dtask/fsm"
)

// store stores parts and jobs, expires at most limit others, and stores the metadata
// that results from it, in one transaction.
func (h *History) store(next *meta, rest *parts, list []encoded, memory *arena, limit int) (expired int, err error) {
	err = h.file.update(func(tx *bbolt.Tx) (err error) {
		if err := rest.store(tx); err != nil {
			return err
		}
		jobs, err := shareTemplates(tx, next, list)
		if err != nil {
			return err
		}
		if err := storeJobs(tx, next, jobs, memory); err != nil {
			return err
		}
		if expired, err = h.expire(tx, next, limit); err != nil {
			return err
		}
		return next.store(tx)
	})
	if err == nil {
		h.expired.Add(uint64(expired)) //nolint:gosec // not negative
	}
	return expired, err
}

// storeJobs stores jobs in a transaction and overwrites those that are stored already.
// The memory of what it stores must stay until the transaction ends.
func storeJobs(tx *bbolt.Tx, m *meta, list []encoded, memory *arena) error {
	if err := storeReferences(tx, m, list); err != nil {
		return err
	}
	jobs, order := tx.Bucket(bucketJobs), tx.Bucket(bucketOrder)
	jobs.FillPercent, order.FillPercent = fillPercent, fillPercent
	var removed []index.Entry
	added := make([]index.Entry, 0, len(list))
	k, _ := jobs.Cursor().Last()
	highest, _ := format.ParseJobKey(k) // jobs mostly leave in the order of their IDs
	var key, position []byte            // reused: bbolt copies keys
	for i := range list {
		e := &list[i]
		key, position = format.AppendJobKey(key[:0], e.Job), e.appendKey(position[:0])
		if e.Job <= highest {
			if old := jobs.Get(key); old != nil {
				entry, err := replaceJob(tx, m, key, old, e)
				if err != nil {
					return err
				}
				removed = append(removed, entry)
			}
		}
		highest = max(highest, e.Job)
		if err := jobs.Put(key, e.value); err != nil {
			return err
		}
		if err := order.Put(position, binary.BigEndian.AppendUint64(memory.bytes(8), e.cost)); err != nil {
			return err
		}
		added = append(added, e.entry)
		m.jobs++
		m.bytes += e.cost
	}
	x := index.Open(tx, jobs)
	if err := x.Remove(removed); err != nil {
		return err
	}
	return x.Add(added)
}

// replaceJob removes a job of which a newer record is stored next, whose parts and
// reference are stored already.
func replaceJob(tx *bbolt.Tx, m *meta, key, value []byte, by *encoded) (index.Entry, error) {
	entry, s, err := removeJob(tx, m, key, value)
	if err != nil {
		return entry, err
	}
	if t := s.template; t != nil && (by.template == nil || by.template.sum != t.sum) {
		if err := removeReference(tx, m, t.sum, by.Job); err != nil {
			return entry, err
		}
	}
	return entry, removeParts(tx, by.Job, by.parts, s.parts)
}

// removeJob removes a job from the buckets of jobs and order. It leaves the parts, the
// reference to a template and the index.
func removeJob(tx *bbolt.Tx, m *meta, key, value []byte) (entry index.Entry, s storedRecord, err error) {
	s, head, err := readHead(key, value)
	if err != nil {
		return entry, s, err
	}
	order := tx.Bucket(bucketOrder)
	position := Position{s.index, head.ID}.key()
	c := order.Get(position)
	if len(c) != 8 {
		return entry, s, format.Damaged("job %d is missing in the order", head.ID)
	}
	size := binary.BigEndian.Uint64(c)
	if m.jobs == 0 || m.bytes < size {
		return entry, s, format.Damaged("it has more jobs than it counts")
	}
	m.jobs, m.bytes = m.jobs-1, m.bytes-size
	if err := order.Delete(position); err != nil {
		return entry, s, err
	}
	return index.NewEntry(&head, nil), s, tx.Bucket(bucketJobs).Delete(key)
}

// expire drops at most limit of the oldest jobs, as long as they are too old or too
// many.
func (h *History) expire(tx *bbolt.Tx, m *meta, limit int) (n int, err error) {
	jobs := tx.Bucket(bucketJobs)
	var removed []index.Entry
	for ; n < limit && m.jobs > 0; n++ {
		k, _ := tx.Bucket(bucketOrder).Cursor().First()
		oldest, ok := parsePosition(k)
		if !ok {
			return n, format.Damaged("it counts %d jobs and has none", m.jobs)
		}
		key := format.JobKey(oldest.Job)
		value := jobs.Get(key)
		if m.jobs <= h.cfg.MaxJobs && m.bytes <= h.cfg.MaxBytes {
			_, head, err := readHead(key, value)
			if err != nil {
				return n, err
			}
			if head.EndedMS >= m.expireBefore {
				break
			}
		}
		entry, s, err := removeJob(tx, m, key, value)
		if err != nil {
			return n, err
		}
		removed = append(removed, entry)
		if s.template != nil {
			if err := removeReference(tx, m, s.template.sum, oldest.Job); err != nil {
				return n, err
			}
		}
		if err := removeParts(tx, oldest.Job, 0, s.parts); err != nil {
			return n, err
		}
	}
	return n, index.Open(tx, jobs).Remove(removed)
}

// verifyJob checks that the index finds a job.
func verifyJob(tx *bbolt.Tx, head *fsm.Head) error {
	return index.Open(tx, tx.Bucket(bucketJobs)).Verify(index.NewEntry(head, nil))
}
