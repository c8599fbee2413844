package fsm

import (
	"cmp"
	"iter"
	"slices"
)

// jobPageSize is the number of jobs in a page of the table.
const jobPageSize = 256

// jobPage has the jobs whose numbers divided by jobPageSize are no.
type jobPage struct {
	own  *ownership
	no   uint64
	jobs [jobPageSize]*job
	live int
}

// jobTable maps numbers to jobs. Pages without jobs are freed, so that its
// length is that of the current jobs, not of the cluster's age.
type jobTable struct {
	own   *ownership
	pages []*jobPage // ascending
	live  int
}

// find returns the position of a page, or the one where it belongs.
func (t *jobTable) find(no uint64) (at int, found bool) {
	if len(t.pages) == 0 {
		return 0, false
	}
	// Usually no page between the first and the last is missing.
	if first := t.pages[0].no; no >= first && no-first < uint64(len(t.pages)) && t.pages[no-first].no == no {
		return int(no - first), true //nolint:gosec // below the length
	}
	return slices.BinarySearchFunc(t.pages, no, func(p *jobPage, no uint64) int { return cmp.Compare(p.no, no) })
}

// all iterates over the jobs, oldest first.
func (t *jobTable) all() iter.Seq[*job] {
	return func(yield func(*job) bool) {
		for _, p := range t.pages {
			for _, j := range &p.jobs {
				if j != nil && !yield(j) {
					return
				}
			}
		}
	}
}

func (t *jobTable) get(id JobID) *job {
	at, found := t.find(uint64(id) / jobPageSize)
	if !found {
		return nil
	}
	return t.pages[at].jobs[id%jobPageSize]
}

// ownPages makes the list of pages writable.
func (t *jobTable) ownPages(own *ownership) {
	if t.own != own {
		t.pages = append(make([]*jobPage, 0, len(t.pages)+1), t.pages...)
		t.own = own
	}
}

// writePage returns a page for changing, a new one if it does not exist.
func (t *jobTable) writePage(own *ownership, no uint64) *jobPage {
	at, found := t.find(no)
	switch {
	case !found:
		t.ownPages(own)
		t.pages = slices.Insert(t.pages, at, &jobPage{own: own, no: no})
	case t.pages[at].own != own:
		t.ownPages(own)
		c := *t.pages[at]
		c.own = own
		t.pages[at] = &c
	}
	return t.pages[at]
}

func (t *jobTable) put(own *ownership, j *job) {
	p := t.writePage(own, uint64(j.id)/jobPageSize)
	if p.jobs[j.id%jobPageSize] == nil {
		p.live++
		t.live++
	}
	p.jobs[j.id%jobPageSize] = j
}

// remove removes a job that exists.
func (t *jobTable) remove(own *ownership, id JobID) {
	no := uint64(id) / jobPageSize
	p := t.writePage(own, no)
	p.jobs[id%jobPageSize] = nil
	p.live--
	t.live--
	if p.live == 0 {
		at, _ := t.find(no)
		t.ownPages(own)
		t.pages = slices.Delete(t.pages, at, at+1)
	}
}

// write returns a job for changing, and marks it as changed.
func (t *jobTable) write(own *ownership, id JobID) *job {
	if j := t.get(id); j != nil {
		return t.change(own, j)
	}
	return nil
}

// change is write for a job of the table.
func (t *jobTable) change(own *ownership, j *job) *job {
	if j.own != own {
		j = t.copy(own, j)
	}
	if own.changed != nil && j.changed != own.at {
		*own.changed = append(*own.changed, j.id)
	}
	j.changed = own.at
	return j
}

// writeUnseen is write for a change that users cannot see.
func (t *jobTable) writeUnseen(own *ownership, id JobID) *job {
	j := t.get(id)
	if j == nil || j.own == own {
		return j
	}
	return t.copy(own, j)
}

// copy replaces a job by a copy that can be written.
func (t *jobTable) copy(own *ownership, j *job) *job {
	c := *j
	c.own = own
	c.chunks, c.neededBy = slices.Clip(c.chunks), slices.Clip(c.neededBy)
	t.put(own, &c)
	return &c
}
