package scheduler

const (
	// pageRuns makes the runs of a page 3,072 bytes, a size class of Go's allocator.
	pageRuns = 96
	// firstRuns is the size of the first page of a ready queue, 256 bytes: with many owners
	// there are many ready queues with few tasks each.
	firstRuns = 8
)

// maxSparePages bounds the drained pages of each size that are kept: 212 KiB, enough for
// a queue around a steady depth to allocate nothing.
const maxSparePages = 64

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

type page struct {
	next *page
	runs []entry // all of them; without pointers, so that the garbage collector skips them
}

// pages allocates pages and keeps a few drained ones.
type pages struct{ large, small spares }

// spares are drained pages of one size.
type spares struct {
	spare *page
	n     int
}

// get returns an empty page: a small one as the first of a ready queue.
func (p *pages) get(first bool) *page {
	if first {
		return p.small.get(firstRuns)
	}
	return p.large.get(pageRuns)
}

func (p *pages) put(pg *page) {
	if len(pg.runs) == firstRuns {
		p.small.put(pg)
	} else {
		p.large.put(pg)
	}
}

func (p *spares) get(runs int) *page {
	if p.spare == nil {
		return &page{runs: make([]entry, runs)}
	}
	pg := p.spare
	p.spare, pg.next = pg.next, nil
	p.n--
	return pg
}

func (p *spares) put(pg *page) {
	pg.next = nil
	if p.n < maxSparePages {
		p.spare, pg.next = pg, p.spare
		p.n++
	}
}

// A fifo is a chain of pages that is read at its head and written at its tail.
// An empty fifo has no page.
type fifo struct {
	head, tail  *page
	first, last int // next to read in head, next to write in tail
	n           int // tasks in all runs
}

// push appends a run, or extends the last one if it continues it.
func (f *fifo) push(from *pages, e entry) {
	f.n += int(e.n)
	switch {
	case f.tail == nil:
		f.head = from.get(true)
		f.tail, f.first, f.last = f.head, 0, 0
	case f.tail.runs[f.last-1].continues(&e):
		f.tail.runs[f.last-1].n += e.n
		return
	case f.last == len(f.tail.runs):
		f.tail.next = from.get(false)
		f.tail, f.last = f.tail.next, 0
	}
	f.tail.runs[f.last] = e
	f.last++
}

// front returns the oldest run. The fifo must not be empty.
func (f *fifo) front() *entry { return &f.head.runs[f.first] }

// pop removes the oldest task.
func (f *fifo) pop(to *pages) {
	f.n--
	if e := f.front(); e.n > 1 {
		e.n, e.index, e.seq = e.n-1, e.index+1, e.seq+1
		return
	}
	f.first++
	if f.n > 0 && f.first < len(f.head.runs) {
		return
	}
	drained := f.head
	f.head, f.first = f.head.next, 0
	if f.head == nil {
		f.tail = nil
	}
	to.put(drained)
}

// A readyQueue has the ready tasks of one class and priority, oldest first. It is listed
// in the level of its flow if it has tasks and is not parked.
type readyQueue struct {
	fifo
	class     *class
	priority  Priority
	parked    parking  // why it is not listed, although it has tasks
	inBlocked bool     // it is in queue.blocked
	pos       int      // in level.ready; -1 if it is not listed
	oldest    uint64   // seq of the front; the key in that heap
	wait      *keyWait // nil: it has never waited for the worker of its key
}

func (q *readyQueue) before(o *readyQueue) bool { return q.oldest < o.oldest }
func (q *readyQueue) setPos(pos int)            { q.pos = pos }
