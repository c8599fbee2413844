package api

import (
	"context"
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxScannedJobs bounds the jobs that one listing scans: a page may therefore be
// short, even empty, and still have one after it.
const maxScannedJobs = 10_000

// maxForeignJobs is maxScannedJobs for jobs in namespaces that are not listed: to skip one
// costs little, and a page must not be short because of jobs that the caller doesn't see.
const maxForeignJobs = 1 << 18

// ListJobs implements JobService.
func (j *jobs) ListJobs(ctx context.Context, r *dtaskv1.ListJobsRequest) (*dtaskv1.ListJobsResponse, error) {
	f, err := newJobFilter(caller(ctx), r)
	if err != nil {
		return nil, err
	}
	st, index := j.cfg.Machine.Fork()
	resp := &dtaskv1.ListJobsResponse{Freshness: j.freshness(index)}
	page := &jobPage{ctx: ctx, server: j.Server, st: st, limit: pageLimit(r.GetLimit()), filter: f, resp: resp}
	next, err := page.fill()
	if err != nil {
		return nil, err
	}
	if next > 0 {
		resp.NextPageToken = pageToken{id: uint64(next)}.String()
	}
	resp.Incomplete = j.cfg.History != nil && j.cfg.History.Incomplete()
	return resp, nil
}

// jobFilter selects the jobs of ListJobs.
type jobFilter struct {
	history.Query

	archived bool // jobs of the history may match
}

func newJobFilter(p *auth.Principal, r *dtaskv1.ListJobsRequest) (*jobFilter, error) {
	f := &jobFilter{Query: history.Query{
		Name: r.GetName(), Owner: r.GetOwner(), Labels: r.GetLabels(), Since: r.GetSubmittedSince(), Before: r.GetSubmittedBefore(),
		Namespaces: shownNamespaces(p, r.GetNamespace()),
	}}
	for _, shown := range r.GetStates() {
		state, ok := storedJobState(shown)
		if !ok {
			return nil, invalid("invalid job state %d", shown)
		}
		f.States = append(f.States, state)
		f.archived = f.archived || state.Terminal()
	}
	f.archived = (f.archived || len(f.States) == 0) && !r.GetChangeable()
	if f.Since < 0 || f.Before < 0 {
		return nil, invalid("invalid submitted_since %d or submitted_before %d: must be milliseconds since 1970", f.Since, f.Before)
	}
	token, err := parsePageToken(r.GetPageToken())
	f.Below = fsm.JobID(token.id)
	return f, err
}

// storedJobState returns the stored state of a shown one; ok is false for an unknown
// state.
func storedJobState(shown dtaskv1.JobState) (state fsm.JobState, ok bool) {
	for stored := fsm.JobPending; stored <= fsm.JobCancelled; stored++ {
		if fsm.ProtoJobState(stored) == shown {
			return stored, true
		}
	}
	return 0, false
}

// jobPage is a page of ListJobs that is being filled.
type jobPage struct {
	ctx    context.Context //nolint:containedctx // it lives within one call
	server *Server
	st     *fsm.State
	limit  int
	filter *jobFilter
	resp   *dtaskv1.ListJobsResponse

	scanned, size int
	foreign       int       // jobs in namespaces that are not listed; they don't count as scanned
	next          fsm.JobID // the next page has jobs below; 0 = this one is not full
	err           error
}

// full reports whether the page ends before a job, and remembers it then.
func (p *jobPage) full(id fsm.JobID) bool {
	if len(p.resp.GetJobs()) < p.limit && p.scanned < maxScannedJobs && p.size <= maxPageBytes && p.ctx.Err() == nil {
		return false
	}
	p.next = id + 1 // the job is the first of the next page
	return true
}

// addLive adds a job of the state if it matches; more is false if the page has ended.
func (p *jobPage) addLive(job fsm.Job) (more bool) {
	if !p.filter.InNamespaces(job.Header) {
		if p.foreign++; p.foreign < maxForeignJobs {
			return true
		}
		p.scanned = maxScannedJobs
	}
	if p.full(job.ID) {
		return false
	}
	p.scanned++
	if !p.filter.Match(&job) {
		return true
	}
	var aggregated uint32
	if aggregated, p.err = p.server.aggregated(p.st, &job); p.err != nil {
		return false
	}
	v := jobView{job: job}
	if job.Counts[fsm.Assigned] > 0 {
		v.observed = countObserved(p.st, job, p.server.observed(job.ID))
	}
	p.add(v.show(aggregated))
	return true
}

func (p *jobPage) add(job *dtaskv1.Job) {
	p.size += proto.Size(job)
	p.resp.Jobs = append(p.resp.Jobs, job)
}

// fill merges jobs of the state and of history, newest first. It returns where the
// next page starts; 0 = no more pages. The state was forked before history is read,
// so that no job is missed.
func (p *jobPage) fill() (next fsm.JobID, err error) {
	live := newLiveJobs(p.st.Jobs(p.filter.Below))
	defer live.stop()
	h := p.server.cfg.History
	if h == nil || !p.filter.archived {
		live.downTo(0, p.addLive)
		return p.next, p.err
	}
	q := p.filter.Query
	if q.Below == 0 || q.Below > p.st.NextJob() {
		q.Below = p.st.NextJob() // jobs newer than the fork are not shown
	}
	rest, err := h.List(p.ctx, q, func(head fsm.Head) bool {
		if !live.downTo(head.ID, p.addLive) {
			return false
		}
		if _, isLive := p.st.Job(head.ID); isLive {
			return true
		}
		if p.full(head.ID) {
			return false
		}
		p.add((&jobView{job: head.Job}).show(head.Aggregated))
		return true
	})
	switch {
	case p.ctx.Err() != nil:
		return 0, context.Cause(p.ctx)
	case err != nil:
		return 0, p.server.historyFailed(err)
	case p.next > 0 || p.err != nil:
		return p.next, p.err
	}
	if live.downTo(rest, p.addLive); p.next == 0 {
		p.next = rest
	}
	return p.next, p.err
}

// liveJobs iterates over the jobs of the state, newest first.
type liveJobs struct {
	pull func() (fsm.Job, bool)
	stop func()
	next fsm.Job
	more bool
}

func newLiveJobs(jobs iter.Seq[fsm.Job]) *liveJobs {
	l := &liveJobs{}
	l.pull, l.stop = iter.Pull(jobs)
	l.next, l.more = l.pull()
	return l
}

// downTo passes the jobs with ids of at least id to yield, and returns false if yield
// does.
func (l *liveJobs) downTo(id fsm.JobID, yield func(fsm.Job) bool) bool {
	for l.more && l.next.ID >= id {
		if !yield(l.next) {
			return false
		}
		l.next, l.more = l.pull()
	}
	return true
}
