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
	// soonest is the pause after which it is first asked whether the last of the jobs is over,
	// which grows by half from time to time up to watchPause: so a wait for what takes long
	// costs little, and one for small jobs ends with them.
	soonest = 2 * time.Millisecond
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
	w := &wait{Server: j.Server, stream: stream, outline: r.GetOutline(), pause: soonest}
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
	passed    int         // so many of left, from the first, have been seen to be over since that look

	pause time.Duration // until it is asked again whether all are over

	stream  grpc.ServerStreamingServer[dtaskv1.WaitJobsResponse]
	outline bool
	page    *dtaskv1.WaitJobsResponse // the next message
	size    int                       // of the page, about
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
	w.over, w.completed, w.index, w.passed = w.over[:0], 0, w.cfg.Machine.Index(), 0
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

// allOver reports whether no job is left to wait for. It goes on from the job at which it
// stopped before, so that little is looked at however often it is asked.
func (w *wait) allOver() bool {
	for over := true; over && w.passed < len(w.left); {
		part := w.left[w.passed:min(w.passed+waitStride, len(w.left))]
		w.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
			for _, id := range part {
				if state, _, ok := st.Progress(id); ok && !state.Terminal() {
					over = false
					return
				}
				w.passed++
			}
		})
	}
	return w.passed == len(w.left)
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
	view, err := w.view(ctx, id)
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
		w.page.Finished, w.size = append(w.page.Finished, view), w.size+n
	}
	w.told = append(w.told, id)
	return nil
}

// view shows a job as the caller asked for.
func (w *wait) view(ctx context.Context, id fsm.JobID) (*dtaskv1.Job, error) {
	v, err := w.Server.look(id)
	if err != nil {
		return nil, err
	}
	if w.outline {
		return outline(v), nil
	}
	return w.viewed(ctx, v)
}

// send sends the page and begins another one.
func (w *wait) send() error {
	page := w.page
	page.Remaining = uint32(len(w.left) - len(w.told)) //nolint:gosec // ≤ maxWaited
	page.TasksCompleted, page.Freshness = w.completed, w.freshness(w.index)
	w.page, w.size = &dtaskv1.WaitJobsResponse{}, 0
	return w.stream.Send(page)
}

// untilNews waits until a job is over, or until it is time for a sign of life. Jobs that are over
// while others are not are told of together, and of the last one soon: those who
// wait for all of them go on then.
func (w *wait) untilNews(ctx context.Context, repeat time.Time) error {
	if len(w.over) > 0 {
		w.pause = soonest
	}
	index, next := w.index, time.Now().Add(watchPause)
	for {
		if err := w.rest(ctx, min(w.pause, time.Until(next), time.Until(repeat)), nil); err != nil {
			return err
		}
		w.pause = min(w.pause+w.pause/2, watchPause)
		latest := repeat
		if index != w.index && next.Before(repeat) {
			latest = next // something has changed since the last look
		}
		if err := w.rest(ctx, time.Until(latest), w.cfg.Machine.Changed(index)); err != nil {
			return err
		}
		index = w.cfg.Machine.Index()
		if now := time.Now(); now.Before(next) && now.Before(repeat) && !w.allOver() {
			continue
		}
		if w.look(); len(w.over) > 0 || !time.Now().Before(repeat) {
			return nil
		}
		index, next = w.index, time.Now().Add(watchPause)
	}
}
