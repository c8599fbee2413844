package api

import (
	"context"
	"errors"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// jobs is JobService.
type jobs struct {
	dtaskv1.UnimplementedJobServiceServer
	*Server
}

const (
	defaultListed = 100
	maxListed     = 1000
	// maxScanned bounds the jobs that one call of ListJobs looks at: a page may
	// therefore be short, even empty, and still have one after it.
	maxScanned = 10_000
	// maxPage bounds the jobs or tasks of one message, in bytes.
	maxPage = 1 << 20
)

// GetJob implements JobService.
func (j *jobs) GetJob(ctx context.Context, r *dtaskv1.GetJobRequest) (*dtaskv1.Job, error) {
	id, err := jobID(r.GetId())
	if err != nil {
		return nil, err
	}
	if err = j.allow(ctx, r.GetConsistency()); err != nil {
		return nil, err
	}
	view, err := j.jobView(ctx, id)
	if err != nil || !r.GetWithLevels() {
		return view, err
	}
	st, job, _, err := j.fork(id)
	if err != nil {
		return nil, err
	}
	if view.Levels, err = levels(ctx, st, job); err != nil {
		return nil, err
	}
	view.Arrays, err = arrays(ctx, st, job, j.observed(id))
	return view, err
}

// ListJobs implements JobService.
func (j *jobs) ListJobs(ctx context.Context, r *dtaskv1.ListJobsRequest) (*dtaskv1.ListJobsResponse, error) {
	f, err := newFilter(r)
	if err != nil {
		return nil, err
	}
	if err := j.allow(ctx, r.GetConsistency()); err != nil {
		return nil, err
	}
	st, index := j.cfg.Machine.Fork()
	resp := &dtaskv1.ListJobsResponse{Freshness: j.freshness(index)}
	page := &jobPage{ctx: ctx, server: j.Server, st: st, limit: f.limit, resp: resp}
	below, err := j.listHistory(ctx, st, f, page)
	if err != nil {
		return nil, err
	}
	if below > 0 {
		resp.NextPageToken = strconv.FormatUint(uint64(below), 10)
	}
	resp.Incomplete = j.cfg.History != nil && j.cfg.History.Incomplete()
	return resp, nil
}

// jobPage is an answer of ListJobs that is being filled.
type jobPage struct {
	ctx    context.Context //nolint:containedctx // it lives within one call
	server *Server
	st     *fsm.State
	limit  int
	resp   *dtaskv1.ListJobsResponse

	scanned, size int
	next          fsm.JobID // the next page has what is below; 0 = this one is not full
	err           error
}

// stop reports whether the page ends before a job, and notes that then.
func (p *jobPage) stop(id fsm.JobID) bool {
	if len(p.resp.GetJobs()) < p.limit && p.scanned < maxScanned && p.size <= maxPage && p.ctx.Err() == nil {
		return false
	}
	p.next = id + 1 // it is the first of the next page
	return true
}

// live adds a job of the state.
func (p *jobPage) live(job fsm.Job) {
	aggregated, err := p.server.aggregated(p.ctx, &job, func() (*fsm.State, error) { return p.st, nil })
	if err != nil {
		p.err = err
		return
	}
	v := sight{job: job}
	if job.Counts[fsm.Assigned] > 0 {
		v.running = countRunning(p.st, job, p.server.observed(job.ID))
	}
	p.add(show(v, aggregated))
}

func (p *jobPage) add(view *dtaskv1.Job) {
	p.size += proto.Size(view)
	p.resp.Jobs = append(p.resp.Jobs, view)
}

// filter is what ListJobs looks for.
type filter struct {
	request *dtaskv1.ListJobsRequest
	states  map[dtaskv1.JobState]bool // empty = all
	limit   int
	below   fsm.JobID // 0 = from the newest
}

func newFilter(r *dtaskv1.ListJobsRequest) (*filter, error) {
	f := &filter{request: r, limit: int(r.GetLimit()), states: make(map[dtaskv1.JobState]bool)}
	if f.limit == 0 {
		f.limit = defaultListed
	}
	if f.limit > maxListed {
		return nil, invalid("limit: %d is too many; send 1 to %d, or 0 for %d", r.GetLimit(), maxListed, defaultListed)
	}
	for _, s := range r.GetStates() {
		if _, known := dtaskv1.JobState_name[int32(s)]; !known || s == dtaskv1.JobState_JOB_STATE_UNSPECIFIED {
			return nil, invalid("states: %d is not a state of a job", s)
		}
		f.states[s] = true
	}
	if r.GetSubmittedSince() < 0 || r.GetSubmittedBefore() < 0 {
		return nil, invalid("submitted_since, submitted_before: a time is negative; send milliseconds since 1970")
	}
	if token := r.GetPageToken(); token != "" {
		below, err := parseJobID(token)
		if err != nil {
			return nil, invalid("page_token: %s is none; send the one of the answer before", quote(token))
		}
		f.below = below
	}
	return f, nil
}

// query is what history is asked for.
func (f *filter) query() history.Query {
	q := history.Query{Name: f.request.GetName(), Owner: f.request.GetOwner(), Labels: f.request.GetLabels(), Below: f.below}
	q.Since, q.Before = f.request.GetSubmittedSince(), f.request.GetSubmittedBefore()
	for state, shown := range shownJobStates {
		if f.states[shown] {
			q.States = append(q.States, state)
		}
	}
	return q
}

// mayHaveEnded reports whether jobs that have ended are among what is looked for.
func (f *filter) mayHaveEnded() bool {
	for state := range f.states {
		if isEnded(state) {
			return true
		}
	}
	return len(f.states) == 0
}

func (f *filter) match(job fsm.Job) bool {
	h, r := job.Header, f.request
	switch {
	case len(f.states) > 0 && !f.states[shownJobStates[job.State]],
		r.GetName() != "" && r.GetName() != h.GetName(),
		r.GetOwner() != "" && r.GetOwner() != h.GetOwner(),
		job.SubmittedMS < r.GetSubmittedSince(),
		r.GetSubmittedBefore() != 0 && job.SubmittedMS >= r.GetSubmittedBefore():
		return false
	}
	for key, want := range r.GetLabels() {
		if got, ok := h.GetLabels()[key]; !ok || got != want {
			return false
		}
	}
	return true
}

// maxReason bounds the reason of a cancellation, in bytes.
const maxReason = 256

// Cancel implements JobService. It is idempotent by nature: what is cancelled
// already stays so.
func (j *jobs) Cancel(ctx context.Context, r *dtaskv1.CancelRequest) (*dtaskv1.CancelResponse, error) {
	id, err := jobID(r.GetJob())
	if err != nil {
		return nil, err
	}
	if n := len(r.GetReason()); n > maxReason {
		return nil, invalid("reason: has %d bytes; send at most %d", n, maxReason)
	}
	leader := j.cfg.Leader()
	if leader == nil {
		return nil, errNotLeader
	}
	if r.GetTask() == "" {
		cancel := leader.CancelJob
		if r.GetNow() {
			cancel = leader.CancelJobNow
		}
		already, err := cancel(ctx, id, r.GetReason())
		if isAlreadyEnded(err) {
			err = j.whyNotCancelled(id, err)
		}
		if err = j.unchangeable(id, err); err != nil {
			if head, ok, _ := j.archived(id); ok && head.State == fsm.JobCancelled {
				return &dtaskv1.CancelResponse{AlreadyCancelled: true}, nil
			}
		}
		return &dtaskv1.CancelResponse{AlreadyCancelled: already}, err
	}
	if r.GetNow() {
		return nil, invalid("now: is for a whole job; leave task empty")
	}
	// Ids of tasks are looked up here, so that "no such task" must not come
	// from a leader that was deposed.
	if err = j.Confirm(ctx); err != nil {
		return nil, err
	}
	ref, whole, err := j.taskOrArray(id, r.GetTask())
	if err != nil {
		return nil, err
	}
	cancel := leader.CancelTask
	if whole {
		cancel = leader.CancelArray
	}
	already, err := cancel(ctx, ref, r.GetReason())
	return &dtaskv1.CancelResponse{AlreadyCancelled: already}, j.unchangeable(id, err)
}

func isAlreadyEnded(err error) bool {
	rejected, ok := errors.AsType[*sequencer.RejectedError](err)
	return ok && rejected.Reason == fsm.AlreadyEnded
}

// whyNotCancelled says what the refusal to cancel a job means: that it has
// ended, or that only its clean-up tasks are left.
func (s *Server) whyNotCancelled(id fsm.JobID, refusal error) error {
	err := refusal
	s.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		if job, ok := st.Job(id); ok && job.CleaningUp() {
			err = conflict("job %d has %s but for its clean-up tasks: let them run, or cancel it with now", id, job.Outcome)
		}
	})
	return err
}
