package api

import (
	"context"
	"strconv"

	"google.golang.org/protobuf/proto"

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
	view, _, err := j.jobView(ctx, id)
	if err != nil || !r.GetWithLevels() {
		return view, err
	}
	st, _ := j.cfg.Machine.Fork()
	job, ok := st.Job(id)
	if !ok {
		return nil, noSuchJob(id) // forgotten since
	}
	view.Levels, err = levels(ctx, st, job)
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
	scanned, size := 0, 0
	for job := range st.Jobs(f.below) {
		if len(resp.GetJobs()) == f.limit || scanned == maxScanned || size > maxPage || ctx.Err() != nil {
			resp.NextPageToken = strconv.FormatUint(uint64(job.ID)+1, 10) // it is the first of the next page
			break
		}
		scanned++
		if !f.match(job) {
			continue
		}
		aggregated, err := j.aggregated(ctx, &job, func() *fsm.State { return st })
		if err != nil {
			return nil, err
		}
		v := sight{job: job}
		if job.Counts[fsm.Assigned] > 0 {
			v.running = countRunning(st, job, j.observed(job.ID))
		}
		view := show(v, aggregated)
		size += proto.Size(view)
		resp.Jobs = append(resp.Jobs, view)
	}
	return resp, nil
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
	if token := r.GetPageToken(); token != "" {
		below, err := parseJobID(token)
		if err != nil {
			return nil, invalid("page_token: %s is none; send the one of the answer before", quote(token))
		}
		f.below = below
	}
	return f, nil
}

func (f *filter) match(job fsm.Job) bool {
	h, r := job.Header, f.request
	switch {
	case len(f.states) > 0 && !f.states[shownJobStates[job.State]],
		r.GetName() != "" && r.GetName() != h.GetName(),
		r.GetOwner() != "" && r.GetOwner() != h.GetOwner():
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
		already, err := leader.CancelJob(ctx, id, r.GetReason())
		return &dtaskv1.CancelResponse{Already: already}, err
	}
	// Ids of tasks are looked up here, so that "no such task" must not come
	// from a leader that was deposed.
	if err = j.confirm(ctx); err != nil {
		return nil, err
	}
	ref, err := j.task(id, r.GetTask())
	if err != nil {
		return nil, err
	}
	already, err := leader.CancelTask(ctx, ref, r.GetReason())
	return &dtaskv1.CancelResponse{Already: already}, err
}
