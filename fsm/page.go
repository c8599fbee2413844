package fsm

// ownership marks who may write a piece of state in place. A State and all that
// it alone can reach carry the same mark; a fork gives both sides new ones, so
// that each copies a piece before it first writes to it. Forking therefore
// costs as much as the lists of pieces are long, not as the state is large.
type ownership struct{ _ byte }

// record is the changing part of a task. 40 bytes; there is one for each task
// of the cluster, so look twice before adding a field.
type record struct {
	started  int64  // ms; begin of the last attempt that ended, or of an at-most-once one that runs
	ended    int64  // ms; end of the last attempt; while Scheduled: when it is due
	attempt  uint32 // 0 = none yet
	worker   WorkerID
	pending  uint32 // dependencies that have not completed
	failures uint32 // failed attempts that burnt a retry
	note     uint32 // position in the job's notes + 1; 0 = none
	state    TaskState
	begun    bool  // at-most-once: its start is logged
	byHand   bool  // cancelled by a person, not because of another task
	losses   uint8 // attempts whose worker was lost while they ran; stays at 255
}

// pageSize is the number of records in a full page. A page is what a write
// after a fork copies: 10 KiB.
const pageSize = 256

// page is a run of records. The last page of a job is only as long as it needs
// to be: most jobs are small.
type page struct {
	own  *ownership
	recs []record
}

// records are the pages of a job.
type records struct {
	own   *ownership
	pages []*page
	n     uint32
}

func (r *records) at(i uint32) *record { return &r.pages[i/pageSize].recs[i%pageSize] }

// write gives a record that may be changed.
func (r *records) write(own *ownership, i uint32) *record {
	p := r.pages[i/pageSize]
	if p.own != own {
		r.ownPages(own)
		p = &page{own: own, recs: append(make([]record, 0, cap(p.recs)), p.recs...)}
		r.pages[i/pageSize] = p
	}
	return &p.recs[i%pageSize]
}

func (r *records) ownPages(own *ownership) {
	if r.own != own {
		r.pages = append(make([]*page, 0, cap(r.pages)), r.pages...)
		r.own = own
	}
}

// grow appends records, up to total in the end.
func (r *records) grow(own *ownership, n, total uint32) {
	r.ownPages(own)
	for n > 0 {
		if r.n%pageSize == 0 {
			size := min(pageSize, total-r.n)
			r.pages = append(r.pages, &page{own: own, recs: make([]record, 0, size)})
		}
		last := r.pages[len(r.pages)-1]
		if last.own != own {
			last = &page{own: own, recs: append(make([]record, 0, cap(last.recs)), last.recs...)}
			r.pages[len(r.pages)-1] = last
		}
		add := min(n, uint32(cap(last.recs)-len(last.recs))) //nolint:gosec // a page is small
		last.recs = last.recs[:len(last.recs)+int(add)]
		r.n += add
		n -= add
	}
}
