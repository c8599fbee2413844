package scheduler

// pageTasks makes a page 3,056 bytes, just under a size class of Go's allocator.
const pageTasks = 127

// maxSparePages bounds what is kept of drained pages: 196 KiB, enough for a
// queue that fills and drains around a steady depth to allocate nothing.
const maxSparePages = 64

// An entry is one ready task in a lane, 24 bytes. It holds no pointer, so that
// the collector does not read a million of them.
type entry struct {
	job   uint64
	seq   uint64 // when it was pushed, among all pushes of this term
	index uint32
	avoid WorkerID
}

func (e *entry) task() TaskRef { return TaskRef{Job: e.job, Index: e.index} }

type page struct {
	next  *page // first, so that the collector stops reading after it
	tasks [pageTasks]entry
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
	n           int
}

func (f *fifo) push(from *pages, e entry) {
	switch {
	case f.tail == nil:
		f.head = from.take()
		f.tail, f.first, f.last = f.head, 0, 0
	case f.last == pageTasks:
		f.tail.next = from.take()
		f.tail, f.last = f.tail.next, 0
	}
	f.tail.tasks[f.last] = e
	f.last++
	f.n++
}

// front is the oldest entry; there must be one.
func (f *fifo) front() *entry { return &f.head.tasks[f.first] }

func (f *fifo) pop(to *pages) {
	f.first++
	f.n--
	if f.n > 0 && f.first < pageTasks {
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
