package history

import (
	"cmp"
	"slices"

	"github.com/dtask/dtask/fsm"
)

const (
	// maxListedImports bounds how many jobs of an import file one listing reads, which has
	// no index of their names, states and labels; each takes about 3 µs.
	maxListedImports = 10_000
	// importWindow is how many entries of an index are read at a time.
	importWindow = 256
)

// importList lists the jobs that are to be imported and match a query, newest first.
type importList struct {
	h      *History
	file   *importFile
	query  *Query
	after  Position // jobs up to there are imported
	reads  int
	unlock func()

	waiting []*importRun   // the highest first
	active  []*importRange // runs that may have the next job
	found   *fsm.Head      // that peek returned
	rest    fsm.JobID      // the listing stopped early: jobs below were not searched
}

// importRange is the part of a run that was not listed yet.
type importRange struct {
	run     *importRun
	below   int         // number of entries before those in the window
	entries []jobOffset // the window; never empty
}

func (r *importRange) last() jobOffset { return r.entries[len(r.entries)-1] }

// listImports begins a listing, which the caller ends with unlock. Like readImport, it must be
// called before the history file is read.
func (h *History) listImports(q *Query) *importList {
	l := &importList{h: h, query: q}
	f, g, unlock := h.lockImport()
	l.unlock = unlock
	if f == nil || !q.MayMatchEnded() {
		return l
	}
	l.file, l.after = f, g.From
	for i := range f.runs {
		run := &f.runs[i]
		imported := i+1 < len(f.runs) && !g.From.before(f.runs[i+1].first)
		if !imported && run.low < q.Below {
			l.waiting = append(l.waiting, run)
		}
	}
	slices.SortFunc(l.waiting, func(a, b *importRun) int { return cmp.Compare(b.high, a.high) })
	return l
}

// peek returns the next job that matches and has at least an ID; nil at the end.
func (l *importList) peek(down fsm.JobID) (*fsm.Head, error) {
	for l.found == nil && l.rest == 0 {
		r, err := l.highest()
		if err != nil {
			return nil, err
		}
		if r == nil || r.last().job < down {
			return nil, nil //nolint:nilnil // nil means that nothing follows
		}
		if l.reads++; l.reads > maxListedImports {
			l.rest = r.last().job + 1
			break
		}
		if l.found, err = l.take(r); err != nil {
			return nil, err
		}
	}
	if l.found != nil && l.found.ID < down {
		return nil, nil //nolint:nilnil // see above
	}
	return l.found, nil
}

// highest returns the range with the next job; nil at the end.
func (l *importList) highest() (best *importRange, err error) {
	for _, r := range l.active {
		if best == nil || r.last().job > best.last().job {
			best = r
		}
	}
	for len(l.waiting) > 0 && (best == nil || l.waiting[0].high > best.last().job) {
		r := &importRange{run: l.waiting[0]}
		l.waiting = l.waiting[1:]
		if r.below, r.entries, err = l.file.entriesBelow(r.run, l.query.Below, importWindow); err != nil {
			if err = l.failed(err); err != nil {
				return nil, err
			}
		}
		if len(r.entries) == 0 {
			continue
		}
		l.active = append(l.active, r)
		if best == nil || r.last().job > best.last().job {
			best = r
		}
	}
	return best, nil
}

// take reads the next job of a range, and moves on; nil if it doesn't match, is imported, or
// can't be read.
func (l *importList) take(r *importRange) (*fsm.Head, error) {
	e := r.last()
	record, err := l.file.record(e)
	var head fsm.Head
	if err == nil && l.after.before(record.Position) {
		head, _, err = record.head()
	}
	if err = l.failed(err); err != nil {
		return nil, err
	}
	if err := l.advance(r); err != nil {
		return nil, err
	}
	if head.ID == 0 || !l.query.Match(&head.Job) {
		return nil, nil //nolint:nilnil // see above
	}
	return &head, nil
}

// advance removes the last entry of a range.
func (l *importList) advance(r *importRange) (err error) {
	if r.entries = r.entries[:len(r.entries)-1]; len(r.entries) > 0 {
		return nil
	}
	from := max(0, r.below-importWindow)
	r.entries, err = l.file.entries(r.run, from, r.below)
	if r.below = from; len(r.entries) == 0 {
		l.active = slices.DeleteFunc(l.active, func(x *importRange) bool { return x == r })
	}
	return l.failed(err)
}

// failed handles an error of reading. The listing skips what is damaged.
func (l *importList) failed(err error) error {
	if err == nil {
		return nil
	}
	failed := l.h.importFailed(err)
	if isDamaged(err) {
		return nil
	}
	return failed
}

// unwritten are the jobs of a listing that are not in the history file yet.
type unwritten struct {
	pending []*fsm.ArchivedJob // newest first
	imports *importList
}

// next returns the newest job that was not returned yet and has at least an ID.
func (u *unwritten) next(down fsm.JobID) (head fsm.Head, ok bool, err error) {
	found, err := u.imports.peek(down)
	if err != nil {
		return head, false, err
	}
	down = max(down, u.imports.rest)
	switch {
	case len(u.pending) > 0 && u.pending[0].ID() >= down && (found == nil || u.pending[0].ID() > found.ID):
		head = u.pending[0].Head()
		u.pending = u.pending[1:]
		return head, true, nil
	case found != nil:
		u.imports.found = nil
		return *found, true, nil
	}
	return head, false, nil
}
