package scheduler

// pageRuns makes a page 3,048 bytes, just under a size class of Go's allocator.
const pageRuns = 95

// maxSparePages bounds what is kept of drained pages: 196 KiB, enough for a
// queue that fills and drains around a steady depth to allocate nothing.
const maxSparePages = 64

// An entry is a run of ready tasks in a lane, 32 bytes: tasks side by side in one
// job that were pushed one after another. It holds no pointer, so that the
// collector does not read a million of them.
type entry struct {
	job   uint64
	seq   uint64 // when the first was pushed, among all pushes of this term
	index uint32 // of the first
	n     uint32 // ≥ 1
	avoid WorkerID
}

// task is the first of the run.
func (e *entry) task() TaskRef { return TaskRef{Job: e.job, Index: e.index} }

// goesOn reports whether next follows at once: its tasks after those of e, with
// nothing pushed between. Only tasks that avoid nobody make runs.
func (e *entry) goesOn(next *entry) bool {
	return e.seq+uint64(e.n) == next.seq && e.index+e.n == next.index && e.job == next.job && e.avoid == 0 && next.avoid == 0
}

type page struct {
	next *page // first, so that the collector stops reading after it
	runs [pageRuns]entry
}

// pages lends out pages and keeps a few of those that come back.
type pages struct {
	spare *page
	n     int
}

func (p *pages) take() *page {
	if p.spare == nil {
		return new(page)
	}
	pg := p.spare
	p.spare, pg.next = pg.next, nil
	p.n--
	return pg
}

func (p *pages) give(pg *page) {
	pg.next = nil
	if p.n < maxSparePages {
		p.spare, pg.next = pg, p.spare
		p.n++
	}
}

// A fifo is a chain of pages that is read at its head and written at its tail.
// An empty one holds no page.
type fifo struct {
	head, tail  *page
	first, last int // next to read in head, next to write in tail
	n           int // tasks, of all runs
}

// push adds a run, to the last one if it goes on with it.
func (f *fifo) push(from *pages, e entry) {
	f.n += int(e.n)
	switch {
	case f.tail == nil:
		f.head = from.take()
		f.tail, f.first, f.last = f.head, 0, 0
	case f.tail.runs[f.last-1].goesOn(&e):
		f.tail.runs[f.last-1].n += e.n
		return
	case f.last == pageRuns:
		f.tail.next = from.take()
		f.tail, f.last = f.tail.next, 0
	}
	f.tail.runs[f.last] = e
	f.last++
}

// front is the oldest run; there must be one.
func (f *fifo) front() *entry { return &f.head.runs[f.first] }

// pop drops the oldest task.
func (f *fifo) pop(to *pages) {
	f.n--
	if e := f.front(); e.n > 1 {
		e.n, e.index, e.seq = e.n-1, e.index+1, e.seq+1
		return
	}
	f.first++
	if f.n > 0 && f.first < pageRuns {
		return
	}
	drained := f.head
	f.head, f.first = f.head.next, 0
	if f.head == nil {
		f.tail = nil
	}
	to.give(drained)
}

// A lane is the ready tasks of one class and priority, oldest first.
type lane struct {
	fifo
	class    *class
	priority Priority
	at       int    // in the heap of its priority, -1 if it is empty or its class blocked
	oldest   uint64 // seq of the front; the key in that heap
}

func (l *lane) before(o *lane) bool { return l.oldest < o.oldest }
func (l *lane) moved(at int)        { l.at = at }
