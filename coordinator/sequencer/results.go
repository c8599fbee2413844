package sequencer

import (
	"cmp"
	"slices"

	"github.com/dtask/dtask/fsm"
)

// evictShare is the part of the cached results that is evicted when the cache
// is full: the search for those that expire first reads all of them.
const evictShare = 64

// resultCache caches the results of pure tasks in the replicated state, and
// keeps the tasks that one of them may end.
type resultCache struct {
	policies *policyTable
	pending  []fsm.TaskRef // pure tasks whose result was cached when they became ready
}

// remember caches the result of a task that has just completed, if the task is
// pure. If the cache is full, it evicts the results that expire first.
func (c *resultCache) remember(b *batch, ref fsm.TaskRef) {
	if j := c.policies.job(b.view, ref.Job); j == nil || !j.pure {
		return
	}
	p := c.policies.of(b.view, ref)
	if p.reuse <= 0 {
		return
	}
	n, bytes := b.view.Results()
	if n >= b.cfg.MaxResults || bytes >= b.cfg.MaxResultBytes {
		b.entry.Do(&fsm.ForgetResults{Items: b.view.ResultsByExpiry(1 + n/evictShare)})
	}
	expires := b.entry.NowMS() + p.reuse.Milliseconds()
	b.entry.Do(&fsm.RememberResults{Items: []fsm.RememberItem{{Task: ref, Expires: expires}}})
}

// next removes and returns the first pending task while the batch is not full.
func (c *resultCache) next(b *batch) (ref fsm.TaskRef, ok bool) {
	if len(c.pending) == 0 || b.full() {
		return fsm.TaskRef{}, false
	}
	ref = c.pending[0]
	c.pending = c.pending[1:]
	if len(c.pending) == 0 {
		c.pending = nil // free the memory
	}
	return ref, true
}

// drop removes the tasks of some runs, which end and become ready again.
func (c *resultCache) drop(runs []fsm.TaskRun) {
	if len(c.pending) == 0 || len(runs) == 0 {
		return
	}
	sorted := slices.SortedFunc(slices.Values(runs), func(a, b fsm.TaskRun) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Index, b.Index))
	})
	c.pending = slices.DeleteFunc(c.pending, func(t fsm.TaskRef) bool {
		_, in := slices.BinarySearchFunc(sorted, t, func(r fsm.TaskRun, t fsm.TaskRef) int {
			switch {
			case r.Job != t.Job:
				return cmp.Compare(r.Job, t.Job)
			case t.Index < r.Index:
				return 1
			case t.Index-r.Index >= r.N:
				return -1
			}
			return 0
		})
		return in
	})
}
