package scheduler

const (
	// pageRuns makes the runs of a large page 3,072 bytes, a size class of Go's allocator.
	pageRuns = 96
	// smallRuns is the size of the pages of a ready queue with fewer tasks than a large page
	// has runs: with many owners there are many of them.
	smallRuns = 8
)

// minSparePages is how many drained pages of each size are kept at least: 212 KiB, enough for
// a queue around a steady depth to allocate nothing. Beside many ready queues an eighth of
// the pages in use is kept: each of them drains a page now and then.
const minSparePages = 64

// An entry is a run of ready tasks, 32 bytes: tasks with consecutive indexes in
// one job that were pushed one after another. It has no pointer, so that the
// garbage collector doesn't scan a million of them.
type entry struct {
	job   uint64
	seq   uint64 // number of the first task's push within the term
	index uint32 // of the first task
	n     uint32 // ≥ 1
	avoid WorkerID
}

// task returns the first task of the run.
func (e *entry) task() TaskRef { return TaskRef{Job: e.job, Index: e.index} }

// continues reports whether the tasks of next follow those of e directly, with
// nothing pushed between. Only tasks that avoid no worker form runs.
func (e *entry) continues(next *entry) bool {
	return e.seq+uint64(e.n) == next.seq && e.index+e.n == next.index && e.job == next.job && e.avoid == 0 && next.avoid == 0
}

// skip removes the first tasks of a run.
func (e *entry) skip(n uint32) { e.n, e.index, e.seq = e.n-n, e.index+n, e.seq+uint64(n) }

type page struct {
	next *page
	runs []entry // all of them; without pointers, so that the garbage collector skips them
}

// A smallPage is a page with its runs, so that it takes one allocation.
type smallPage struct {
	page
	room [smallRuns]entry
}

// pages allocates pages and keeps a few drained ones.
type pages struct{ large, small spares }

// spares are drained pages of one size.
type spares struct {
	spare   *page
	n, used int
}

// get returns an empty page for a ready queue with n tasks.
func (p *pages) get(n int) *page {
	if n >= pageRuns {
		if pg := p.large.get(); pg != nil {
			return pg
		}
		return &page{runs: make([]entry, pageRuns)}
	}
	if pg := p.small.get(); pg != nil {
		return pg
	}
	pg := &smallPage{}
	pg.runs = pg.room[:]
	return &pg.page
}

func (p *pages) put(pg *page) {
	if len(pg.runs) == smallRuns {
		p.small.put(pg)
	} else {
		p.large.put(pg)
	}
}

// get returns a drained page, or nil: then the caller makes one.
func (p *spares) get() *page {
	p.used++
	pg := p.spare
	if pg != nil {
		p.spare, pg.next = pg.next, nil
		p.n--
	}
	return pg
}

func (p *spares) put(pg *page) {
	p.used--
	pg.next = nil
	switch most := max(minSparePages, p.used/8); {
	case p.n < most:
		p.spare, pg.next = pg, p.spare
		p.n++
	case p.n > most: // fewer pages are in use than before
		p.spare = p.spare.next
		p.n--
	}
}

// A fifo has its oldest run in itself, and the others in a chain of pages that is read at its
// head and written at its tail: with many owners there are many ready queues, most of which
// have few tasks, and to read the oldest one takes no access to further memory.
type fifo struct {
	first      entry // the oldest run; it is valid if n > 0
	head, tail *page // nil: there are no others
	at, end    int32 // next to read in head, next to write in tail
	n          int   // tasks in all runs
}

// push appends a run, or extends the last one if it continues it.
func (f *fifo) push(from *pages, e entry) {
	before := f.n
	if f.n += int(e.n); before == 0 {
		f.first = e
		return
	}
	last := &f.first
	if f.tail != nil {
		last = &f.tail.runs[f.end-1]
	}
	switch {
	case last.continues(&e):
		last.n += e.n
		return
	case f.tail == nil:
		f.head = from.get(before)
		f.tail, f.at, f.end = f.head, 0, 0
	case int(f.end) == len(f.tail.runs):
		f.tail.next = from.get(before)
		f.tail, f.end = f.tail.next, 0
	}
	f.tail.runs[f.end] = e
	f.end++
}

// front returns the oldest run. The fifo must not be empty.
func (f *fifo) front() *entry { return &f.first }

// pop removes the oldest task.
func (f *fifo) pop(to *pages) {
	f.n--
	switch e := &f.first; {
	case e.n > 1:
		e.skip(1)
	case f.head != nil:
		*e = f.head.runs[f.at]
		if f.at++; int(f.at) == len(f.head.runs) || f.head == f.tail && f.at == f.end {
			f.dropHead(to)
		}
	}
}

// skip removes the oldest tasks, less than the oldest run has.
func (f *fifo) skip(n uint32) {
	f.n -= int(n)
	f.first.skip(n)
}

// popRun removes the oldest run.
func (f *fifo) popRun(to *pages) {
	f.skip(f.first.n - 1)
	f.pop(to)
}

// dropHead removes the first page, all of whose runs were read.
func (f *fifo) dropHead(to *pages) {
	drained := f.head
	f.head, f.at = drained.next, 0
	if f.head == nil {
		f.tail = nil
	}
	to.put(drained)
}

// A readyQueue has the ready tasks of one class and priority, oldest first. It is listed
// in the level of its flow if it has tasks and is not parked.
type readyQueue struct {
	fifo
	class    *class
	oldest   uint64 // seq of the front; the key in level.ready
	pos      int32  // in level.ready; -1 if it is not listed
	priority Priority
	parked   parking   // why it is not listed, although it has tasks
	wait     *keyWait  // nil: it has never waited for the worker of its key
	gated    *gateWait // nil: it has never been parked at a gate
}

// mayStart reports whether nothing but missing capacity holds back its first task.
func (r *readyQueue) mayStart() bool { return r.class.mayStart(r.priority) }

// A readyAge is a readyQueue in the order of its level.
type readyAge struct {
	age uint64 // that of the front
	*readyQueue
}

func (r readyAge) before(o readyAge) bool { return r.age < o.age }
func (r readyAge) setPos(pos int)         { r.pos = int32(pos) } //nolint:gosec // G115: ready queues of an owner are far fewer
