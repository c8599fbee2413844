package api

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// maxWaited bounds the jobs of one call of WaitJobs, and maxWaits those of all
	// calls: each is looked at with each change, ten times a second at most.
	maxWaited = 10_000
	maxWaits  = 1_000_000
	// waitStride is how many jobs are looked at while the machine's lock is held.
	waitStride = 1000
	// waitRetry is the pause for those who find too many waiting.
	waitRetry = time.Second
)

// WaitJobs implements JobService. Like WatchJob it goes on from this replica's
// state, whether it leads or not.
func (j *jobs) WaitJobs(r *dtaskv1.WaitJobsRequest, stream grpc.ServerStreamingServer[dtaskv1.WaitJobsResponse]) error {
	ctx := stream.Context()
	n := int64(len(r.GetJobs()))
	if n < 1 || n > maxWaited {
		return invalid("jobs: there are %d; send 1 to %d, and wait for the others in further calls", n, maxWaited)
	}
	if !j.waits.TryAcquire(n) {
		return &Error{Kind: KindBusy, Message: "too many jobs are being waited for", RetryAfter: waitRetry}
	}
	defer j.waits.Release(n)
	if err := j.allow(ctx, r.GetConsistency()); err != nil {
		return err
	}
	if err := j.reach(ctx, r.GetFromIndex(), r.GetConsistency()); err != nil {
		return err
	}
	w := &wait{Server: j.Server, stream: stream}
	w.take(r.GetJobs())
	for w.look(); ; {
		told := time.Now()
		if err := w.tellAll(ctx); err != nil || len(w.left) == 0 {
			return err
		}
		if err := w.untilNews(ctx, told.Add(watchRepeat)); err != nil {
			return err
		}
	}
}

// A wait is one call of WaitJobs. It belongs to the goroutine of the call.
type wait struct {
	*Server

	left []fsm.JobID // still to be told of, in order
	told []fsm.JobID // of these, already on a page

	over      []fsm.JobID // of left, by the last look: ended, or not in the state
	completed uint64      // tasks of the others, by that look
	index     uint64      // of the log, that nothing of that look is older than

	stream grpc.ServerStreamingServer[dtaskv1.WaitJobsResponse]
	page   *dtaskv1.WaitJobsResponse // the next message
	size   int                       // of the page, about
}

// take notes which jobs to wait for. What is no id is the id of no job.
func (w *wait) take(ids []string) {
	w.page = &dtaskv1.WaitJobsResponse{}
	for _, text := range ids {
		id, err := parseJobID(text)
		if err != nil {
			w.page.Unknown = append(w.page.Unknown, text)
			continue
		}
		w.left = append(w.left, id)
	}
	slices.Sort(w.left)
	w.left = slices.Compact(w.left)
}

// look finds the jobs that are over.
func (w *wait) look() {
	w.over, w.completed, w.index = w.over[:0], 0, w.cfg.Machine.Index()
	for part := range slices.Chunk(w.left, waitStride) {
		w.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
			for _, id := range part {
				state, completed, ok := st.Progress(id)
				if !ok || state.Terminal() {
					w.over = append(w.over, id)
					continue
				}
				w.completed += uint64(completed)
			}
		})
	}
}

// tellAll tells of the jobs that are over. Before an error it sends what it knows.
func (w *wait) tellAll(ctx context.Context) error {
	var failed error
	for _, id := range w.over {
		if failed = w.tell(ctx, id); failed != nil {
			break
		}
	}
	if err := w.send(); err != nil {
		return err
	}
	told := w.told
	w.left = slices.DeleteFunc(w.left, func(id fsm.JobID) bool {
		if len(told) == 0 || told[0] != id {
			return false
		}
		told = told[1:]
		return true
	})
	w.told = w.told[:0]
	return failed
}

// tell puts a job on the page, unless it goes on again.
func (w *wait) tell(ctx context.Context, id fsm.JobID) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	v, err := w.Server.look(id)
	var view *dtaskv1.Job
	if err == nil {
		view, err = w.viewed(ctx, v)
	}
	known, _ := errors.AsType[*Error](err)
	switch {
	case known != nil && known.Kind == KindNotFound:
		w.page.Unknown = append(w.page.Unknown, strconv.FormatUint(uint64(id), 10))
	case err != nil:
		return err
	case !isEnded(view.GetState()):
		return nil
	default:
		n := proto.Size(view)
		if w.size+n > maxPage && w.size > 0 {
			if err := w.send(); err != nil {
				return err
			}
		}
		w.page.Ended, w.size = append(w.page.Ended, view), w.size+n
	}
	w.told = append(w.told, id)
	return nil
}

// send sends the page and begins another one.
func (w *wait) send() error {
	page := w.page
	page.Left = uint32(len(w.left) - len(w.told)) //nolint:gosec // ≤ maxWaited
	page.TasksCompleted, page.Freshness = w.completed, w.freshness(w.index)
	w.page, w.size = &dtaskv1.WaitJobsResponse{}, 0
	return w.stream.Send(page)
}

// untilNews waits until a job is over, or until it is time for a sign of life.
func (w *wait) untilNews(ctx context.Context, repeat time.Time) error {
	for {
		if err := w.rest(ctx, min(watchPause, time.Until(repeat)), nil); err != nil {
			return err
		}
		if err := w.rest(ctx, time.Until(repeat), w.cfg.Machine.Changed(w.index)); err != nil {
			return err
		}
		if w.look(); len(w.over) > 0 || !time.Now().Before(repeat) {
			return nil
		}
	}
}
