package history

import (
	"context"
	"encoding/binary"
	"time"

	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/fsm"
)

// retryEvery is the pause after a write that failed, for want of room mostly.
const retryEvery = time.Second

// partsAtOnce bounds the parts of one transaction, in bytes: so many are synced without
// much standing in the way of the log, which is mostly on the same disk.
const partsAtOnce = 1 << 20

// fillPercent fills the pages of what is written mostly in order.
const fillPercent = 0.9

// write is the writer: it alone changes the file.
func (h *History) write(ctx context.Context) error {
	for {
		select {
		case o := <-h.orders: // also while there is no end of writing
			o.done <- o.do()
		default:
		}
		wait, work := h.due()
		if work && ctx.Err() == nil {
			if err := h.flush(ctx); err == nil {
				continue
			}
			wait = retryEvery
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-h.wake:
		case o := <-h.orders:
			o.done <- o.do()
		case <-timer.C:
		}
		timer.Stop()
	}
}

// due says whether there is something to write now, or else how long to wait.
func (h *History) due() (wait time.Duration, work bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.bad, len(h.newGaps) > 0, h.synced > h.meta.through, h.bytes >= h.cfg.Batch, h.expiring(), h.more:
		return 0, true
	case len(h.queue) == 0:
		return time.Hour, false
	}
	left := h.cfg.Delay - time.Since(h.queue[0].since)
	return max(left, time.Millisecond), left <= 0
}

// expiring reports whether more is kept than may be. What is too old goes with the
// next write. The lock is held.
func (h *History) expiring() bool {
	return h.meta.jobs > h.cfg.MaxJobs || h.meta.bytes > h.cfg.MaxBytes
}

// flush writes what waits, a batch of it.
func (h *History) flush(ctx context.Context) error {
	h.mu.Lock()
	bad := h.bad
	h.mu.Unlock()
	var err error
	if bad {
		err = h.beginAnew()
	}
	if err == nil {
		err = h.writeBatch()
	}
	if err != nil && ctx.Err() == nil {
		h.failures.Add(1)
		h.log.ErrorContext(ctx, "the history cannot be written", "err", err)
		h.blame(err)
	}
	return err
}

// beginAnew sets the damaged file aside. All that it had is a gap then.
func (h *History) beginAnew() error {
	if err := h.file.begin(); err != nil {
		return err
	}
	h.asides.Add(1)
	h.log.Error("the damaged history was set aside, and is fetched from the other replicas", "kept_as", h.cfg.Path+asideName)
	h.mu.Lock()
	defer h.mu.Unlock()
	m := meta{through: h.meta.through, endedBefore: h.meta.endedBefore}
	if m.through > 0 {
		m.gaps = []gap{{To: m.through}}
	}
	err := h.file.update(m.store)
	if err == nil {
		h.meta, h.bad = m, false
		h.tell()
	}
	return err
}

// A batch is what is written in one transaction.
type batch struct {
	jobs    []waiting
	records []encoded
	next    meta
	more    bool // is to expire still
}

// encoded is a job as it is written.
type encoded struct {
	Place
	value []byte // sealed
	words []word
	cost  uint64

	submitted int64 // ms
}

func (h *History) writeBatch() error {
	b, gaps := h.take()
	size, memory, rest := 0, new(arena), new(parts)
	for _, w := range b.jobs {
		if w.job == nil {
			b.next.through = max(b.next.through, w.index)
			continue
		}
		e, err := h.encode(w, memory, rest)
		if err != nil {
			return err
		}
		b.records = append(b.records, e)
		size += int(e.cost) //nolint:gosec // far below 2^63
	}
	most, expired := 2*len(b.records)+1000, 0
	err := h.file.update(func(tx *bbolt.Tx) error {
		if err := rest.put(tx); err != nil {
			return err
		}
		if err := put(tx, &b.next, b.records, memory); err != nil {
			return err
		}
		var err error
		if expired, err = h.expire(tx, &b.next, most); err != nil {
			return err
		}
		return b.next.store(tx)
	})
	if err != nil {
		return err
	}
	h.expired.Add(uint64(expired)) //nolint:gosec // not negative
	b.more = expired == most
	h.wrote(b, gaps)
	h.file.used(size)
	return nil
}

// take takes a batch from the queue. It stays there until it is written.
func (h *History) take() (b batch, gaps int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b.next = h.meta
	b.next.endedBefore = max(b.next.endedBefore, h.before)
	b.next.gaps = append(append([]gap(nil), h.meta.gaps...), h.newGaps...)
	size := 0
	for _, w := range h.queue {
		if size >= h.cfg.Batch {
			break
		}
		b.jobs = append(b.jobs, w)
		size += w.cost
	}
	if len(b.jobs) == len(h.queue) {
		// All that was applied is here.
		b.next.through = max(b.next.through, h.synced, h.gapped)
	}
	return b, len(h.newGaps)
}

// wrote takes what is in the file out of memory.
func (h *History) wrote(b batch, gaps int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range b.jobs {
		if w.job != nil && h.pending[w.job.ID()] == w.job {
			delete(h.pending, w.job.ID())
		}
		h.bytes -= w.cost
	}
	clear(h.queue[:len(b.jobs)])
	h.queue = h.queue[len(b.jobs):]
	if len(h.queue) == 0 {
		h.queue = nil // give the memory back
	}
	h.newGaps = h.newGaps[gaps:]
	h.meta, h.more = b.next, b.more
	h.tell()
}

// parts are those of long records that are not written yet. They are nothing without the
// heads, so that they may be written before them; those of one job after the other are written together.
type parts struct {
	list [][2][]byte // key and value
	size int
}

func (p *parts) put(tx *bbolt.Tx) error {
	bucket := tx.Bucket(bucketParts)
	bucket.FillPercent = fillPercent
	for _, kv := range p.list {
		if err := bucket.Put(kv[0], kv[1]); err != nil {
			return err
		}
	}
	return nil
}

// encode makes what is written of a job. The parts of a long one are added to those that
// wait, which are written when there are many.
func (h *History) encode(w waiting, into *arena, rest *parts) (encoded, error) {
	id, total := w.job.ID(), 0
	c := cutter{head: h.head[:0], rest: h.rest[:0], put: func(part uint32, b []byte) error {
		key := partKey(id, part)
		total += len(b)
		rest.list, rest.size = append(rest.list, [2][]byte{key, sealed(key, b)}), rest.size+len(b)
		if rest.size < partsAtOnce {
			return nil
		}
		err := h.file.update(rest.put)
		*rest = parts{}
		return err
	}}
	head, err := h.records.Write(w.job, &c)
	if err == nil {
		err = c.close()
	}
	if err != nil {
		return encoded{}, err
	}
	h.rest = c.rest // its memory is used again, and that of the head, unless it was cut
	if !c.long {
		h.head = c.head
	}
	return makeEncoded(Place{w.index, id}, c.n, c.head, &head, total, into), nil
}

// arena is memory for the values and words of one transaction, which all end with it. nil: each
// has its own.
type arena struct {
	b     []byte
	words []word
}

// wordsOf gives the words of a job.
func (a *arena) wordsOf(h *fsm.Head) []word {
	if a == nil {
		return words(h)
	}
	at := len(a.words)
	a.words = appendWords(a.words, h)
	return a.words[at:len(a.words):len(a.words)]
}

// of gives memory for n bytes.
func (a *arena) of(n int) []byte {
	const block = 1 << 20
	if a == nil || n > block/8 {
		return make([]byte, 0, n)
	}
	if cap(a.b)-len(a.b) < n {
		a.b = make([]byte, 0, block)
	}
	at := len(a.b)
	a.b = a.b[:at+n]
	return a.b[at : at : at+n]
}

// makeEncoded makes what is written of a job whose parts are written. record is the
// whole record, or the head of one that has parts.
func makeEncoded(p Place, parts uint32, record []byte, head *fsm.Head, partBytes int, into *arena) encoded {
	s := stored{index: p.Index, parts: parts, record: record}
	value := sealed(jobKey(p.Job), s.append(into.of(valueHeader+len(record)+sumSize)))
	e := encoded{Place: p, value: value, words: into.wordsOf(head), submitted: head.SubmittedMS}
	e.cost = costOf(head, len(value), partBytes)
	return e
}

// costOf is about what a job takes on disk: its keys and values, its places in the lists of
// words, and the free part of pages. A name or a label may be its own alone and take a
// list; states and owners are shared.
func costOf(head *fsm.Head, value, parts int) uint64 {
	const keys, element, perWord = 8 + 16 + 4, 16, 16 + 16
	words := 1 + len(head.Header.GetLabels())
	return uint64(value+parts+keys+2*element)*10/9 + uint64(words*perWord)*3/2 //nolint:gosec // not negative
}

// put stores jobs. One that is there already is stored over. What is stored lies in memory
// until the transaction ends.
func put(tx *bbolt.Tx, m *meta, list []encoded, memory *arena) error {
	jobs, order, index := tx.Bucket(bucketJobs), tx.Bucket(bucketOrder), tx.Bucket(bucketIndex)
	jobs.FillPercent, order.FillPercent = fillPercent, fillPercent
	var gone []post
	posts := make([]post, 0, 4*len(list))
	highest := fsm.JobID(0) // that is there: jobs leave mostly in the order of their numbers
	if k, _ := jobs.Cursor().Last(); len(k) == 8 {
		highest = fsm.JobID(binary.BigEndian.Uint64(k))
	}
	var key, place []byte // used again for each: bbolt keeps copies of keys
	for i := range list {
		e := &list[i]
		key, place = appendJobKey(key[:0], e.Job), appendOrderKey(place[:0], e.Place)
		var old []byte
		if e.Job <= highest {
			old = jobs.Get(key)
		}
		if highest = max(highest, e.Job); old != nil {
			var err error
			if gone, err = remove(tx, m, key, old, gone); err != nil {
				return err
			}
		}
		if err := jobs.Put(key, e.value); err != nil {
			return err
		}
		if err := order.Put(place, binary.BigEndian.AppendUint64(memory.of(8), e.cost)); err != nil {
			return err
		}
		for _, w := range e.words {
			posts = append(posts, makePost(w, e.Job))
		}
		m.jobs++
		m.bytes += e.cost
	}
	if err := removePosts(index, sorted(gone)); err != nil {
		return err
	}
	if err := addTimes(tx, list); err != nil {
		return err
	}
	return addPosts(index, sorted(posts))
}

// remove takes out all of a job but its parts, since those of the new one may be there,
// and its posts, which it adds to gone.
func remove(tx *bbolt.Tx, m *meta, key, value []byte, gone []post) ([]post, error) {
	s, err := readValue(key, value)
	if err != nil {
		return nil, err
	}
	head, err := headOf(key, s)
	if err != nil {
		return nil, err
	}
	order := tx.Bucket(bucketOrder)
	place := orderKey(Place{s.index, head.ID})
	c := order.Get(place)
	if len(c) != 8 {
		return nil, damaged("job %d has no place in the order", head.ID)
	}
	size := binary.BigEndian.Uint64(c)
	if m.jobs == 0 || m.bytes < size {
		return nil, damaged("it has more than it counts")
	}
	m.jobs, m.bytes = m.jobs-1, m.bytes-size
	for _, w := range words(&head) {
		gone = append(gone, makePost(w, head.ID))
	}
	if err := order.Delete(place); err != nil {
		return nil, err
	}
	return gone, tx.Bucket(bucketJobs).Delete(key)
}

// expire drops the oldest jobs that are too old or too many, at most so many.
func (h *History) expire(tx *bbolt.Tx, m *meta, most int) (n int, err error) {
	jobs, parts := tx.Bucket(bucketJobs), tx.Bucket(bucketParts)
	var gone []post
	var went []fsm.JobID
	for ; n < most && m.jobs > 0; n++ {
		k, _ := tx.Bucket(bucketOrder).Cursor().First()
		place, ok := readOrderKey(k)
		if !ok {
			return n, damaged("it counts %d jobs and has none", m.jobs)
		}
		key := jobKey(place.Job)
		value := jobs.Get(key)
		s, err := readValue(key, value)
		if err != nil {
			return n, err
		}
		if m.jobs <= h.cfg.MaxJobs && m.bytes <= h.cfg.MaxBytes {
			head, err := headOf(key, s)
			if err != nil {
				return n, err
			}
			if head.EndedMS >= m.endedBefore {
				break
			}
		}
		if gone, err = remove(tx, m, key, value, gone); err != nil {
			return n, err
		}
		went = append(went, place.Job)
		for part := uint32(1); part <= s.parts; part++ {
			if err := parts.Delete(partKey(place.Job, part)); err != nil {
				return n, err
			}
		}
	}
	if err := dropTimes(tx, went); err != nil {
		return n, err
	}
	return n, removePosts(tx.Bucket(bucketIndex), sorted(gone))
}
