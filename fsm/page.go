package fsm

// ownership marks who may change a piece of the state in place. A State and
// everything that only it can reach have the same mark. A fork gives both
// sides new marks, so that each copies a piece before its first write. The
// cost of a fork is therefore that of the lists of pieces, not that of the
// state.
type ownership struct {
	at      uint64   // log index of the entry that is being applied; Machine sets it
	changed *[]JobID // collects the jobs that this entry changes; nil: nobody subscribes
	// events keeps what this entry does; nil: they are not kept. Machine sets it.
	events *eventRing
}

// record is the changing part of a task: 48 bytes for each task of the
// cluster. Think twice before adding a field.
type record struct {
	changed  uint64 // see changes.go; not replicated
	started  int64  // ms; start of the last attempt; until it ends, when it was assigned or its start was logged
	ended    int64  // ms; end of the last attempt; while Scheduled: the due time
	attempt  uint32 // 0 = none yet
	worker   WorkerID
	pending  uint32 // dependencies whose condition does not hold
	failures uint32 // failed attempts that count as retries: another attempt follows
	note     uint32 // position in the job's notes + 1; 0 = none
	state    TaskState
	marks    attemptMarks
	cause    cancelCause // of a cancelled task
	losses   uint8       // requeued attempts whose worker was marked down; saturates at 255
}

// attemptMarks say how the last attempt was assigned and started: markStartLogged, and above
// it the number of the alternative that it takes.
type attemptMarks uint8

const (
	markStartLogged attemptMarks = 1 // at-most-once: its start is logged
	// MaxAlternatives is how many alternatives of resources a task may have, beside the first.
	MaxAlternatives = 7
)

func (m attemptMarks) startLogged() bool  { return m&markStartLogged != 0 }
func (m attemptMarks) alternative() uint8 { return uint8(m >> 1) }
func (m attemptMarks) valid() bool        { return m.alternative() <= MaxAlternatives }

// marksOf returns the marks of an attempt that was assigned.
func marksOf(alternative uint8) attemptMarks { return attemptMarks(alternative << 1) }

// failed reports whether a task ended without completing, other than skipped.
func (r *record) failed() bool {
	return r.state.Terminal() && r.state != Completed && (r.state != Cancelled || r.cause != causeSkipped)
}

// pageSize is the number of records in a full page. The first write after a
// fork copies a page: 12 KiB.
const pageSize = 256

// page is a run of records. The last page of a job is only as long as needed:
// most jobs are small.
type page struct {
	own     *ownership
	recs    []record
	changed uint64 // the highest of those of its records
}

// records are the pages of a job.
type records struct {
	own   *ownership
	pages []*page
	n     uint32
}

func (r *records) at(i uint32) *record { return &r.pages[i/pageSize].recs[i%pageSize] }

// write returns a record for changing, and marks it as changed.
func (r *records) write(own *ownership, i uint32) *record {
	p := r.writePage(own, i/pageSize)
	p.changed = own.at
	rec := &p.recs[i%pageSize]
	rec.changed = own.at
	return rec
}

// writeUnseen is write for a change that users cannot see.
func (r *records) writeUnseen(own *ownership, i uint32) *record {
	return &r.writePage(own, i/pageSize).recs[i%pageSize]
}

// writePage returns a page for changing.
func (r *records) writePage(own *ownership, no uint32) *page {
	p := r.pages[no]
	if p.own != own {
		r.ownPages(own)
		p = &page{own: own, recs: append(make([]record, 0, cap(p.recs)), p.recs...), changed: p.changed}
		r.pages[no] = p
	}
	return p
}

func (r *records) ownPages(own *ownership) {
	if r.own != own {
		r.pages = append(make([]*page, 0, cap(r.pages)), r.pages...)
		r.own = own
	}
}

// grow appends n records. A job has total records in the end.
func (r *records) grow(own *ownership, n, total uint32) {
	r.ownPages(own)
	for n > 0 {
		if r.n%pageSize == 0 {
			size := min(pageSize, total-r.n)
			r.pages = append(r.pages, &page{own: own, recs: make([]record, 0, size)})
		}
		last := r.writePage(own, uint32(len(r.pages)-1))     //nolint:gosec // a job has few
		add := min(n, uint32(cap(last.recs)-len(last.recs))) //nolint:gosec // a page is small
		last.recs = last.recs[:len(last.recs)+int(add)]
		r.n += add
		n -= add
	}
}

// growRun appends n equal records. Their whole pages are one shared page
// without an owner until a record changes.
func (r *records) growRun(own *ownership, n, total uint32, fresh record) {
	r.ownPages(own)
	var shared *page
	for n > 0 {
		if r.n%pageSize != 0 || n < pageSize {
			first := r.n
			add := min(n, pageSize-r.n%pageSize)
			r.grow(own, add, total)
			for i := first; i < first+add; i++ {
				*r.writeUnseen(own, i) = fresh
			}
			r.pages[first/pageSize].changed = max(r.pages[first/pageSize].changed, fresh.changed)
			n -= add
			continue
		}
		if shared == nil {
			shared = &page{recs: make([]record, pageSize), changed: fresh.changed}
			for i := range shared.recs {
				shared.recs[i] = fresh
			}
		}
		r.pages = append(r.pages, shared)
		r.n += pageSize
		n -= pageSize
	}
}

// writeRun calls f to change n records from first on, in a way that users
// cannot see, and calls hit with the runs for which f reports a change that
// they can. Shared pages stay shared, and f is called for the records of one
// of them only.
func (r *records) writeRun(own *ownership, first, n uint32, f func(*record) bool, hit func(first, n uint32)) {
	var was, is *page // the last shared page, before and after
	var hits [][2]uint32
	r.ownPages(own)
	for i := first; i < first+n; {
		no, from := i/pageSize, i%pageSize
		to := min(from+first+n-i, pageSize)
		p := r.pages[no]
		whole := from == 0 && to == pageSize && p.own == nil
		if whole && p == was {
			r.pages[no] = is
		} else {
			hits = hits[:0]
			q := r.writePage(own, no)
			if was = nil; whole {
				was, is = p, q
				q.own = nil // shared from now on, if the next one is the same
			}
			for at := from; at < to; at++ {
				if !f(&q.recs[at]) {
					continue
				}
				q.recs[at].changed, q.changed = own.at, own.at
				if last := len(hits) - 1; last >= 0 && hits[last][1] == at {
					hits[last][1]++
				} else {
					hits = append(hits, [2]uint32{at, at + 1})
				}
			}
		}
		for _, h := range hits {
			hit(no*pageSize+h[0], h[1]-h[0])
		}
		i += to - from
	}
}
