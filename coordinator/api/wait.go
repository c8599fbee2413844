package api

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// maxCallWaits bounds the jobs of one call of WaitJobs, and maxWaits those of all
	// calls: each takes about 70 bytes, and is read for each message of its call.
	maxCallWaits = 10_000
	maxWaits     = 1_000_000
	// waitStride is how many jobs are read while the machine's lock is held.
	waitStride = 1000
	// waitRetryDelay is when to repeat a call that exceeds maxWaits.
	waitRetryDelay = time.Second
	// minWaitInterval is the pause after a job has finished while others have not, so
	// that a call for many short jobs does not run for each log entry.
	minWaitInterval = 2 * time.Millisecond
)

// WaitJobs implements JobService. Like WatchJob it continues from this replica's
// state, whether it leads or not.
func (j *jobs) WaitJobs(r *dtaskv1.WaitJobsRequest, stream grpc.ServerStreamingServer[dtaskv1.WaitJobsResponse]) error {
	ctx := stream.Context()
	n := int64(len(r.GetJobs()))
	if n < 1 || n > maxCallWaits {
		return invalid("invalid number of jobs %d: must be 1 to %d per call", n, maxCallWaits)
	}
	if !j.waits.TryAcquire(n) {
		return &Error{Kind: KindBusy, Message: "too many jobs are being waited for", RetryAfter: waitRetryDelay}
	}
	defer j.waits.Release(n)
	if err := j.awaitIndex(ctx, r.GetFromIndex(), r.GetConsistency()); err != nil {
		return err
	}
	w := &wait{Server: j.Server, caller: caller(ctx), stream: stream, outline: r.GetOutline()}
	w.parse(r.GetJobs())
	w.changes = j.cfg.Machine.Subscribe(w.remaining...) // before the scan: no end is missed
	defer w.changes.Close()
	for w.scan(); ; {
		reported := time.Now()
		if err := w.report(ctx); err != nil || len(w.remaining) == 0 {
			return err
		}
		if err := w.awaitFinished(ctx, reported); err != nil {
			return err
		}
	}
}

// A wait is one call of WaitJobs. It belongs to the goroutine of the call.
type wait struct {
	*Server

	caller    *auth.Principal
	remaining []fsm.JobID // not sent yet, ascending
	paged     []fsm.JobID // of these, already on a page

	finished  []fsm.JobID // of remaining, at the last scan: terminal, or not in the state for the caller
	completed uint64      // tasks of the others, at that scan
	index     uint64      // log index that the last scan is not older than
	checked   int         // so many of remaining, from the first, have finished since that scan

	changes *fsm.Subscription // to the jobs that remained at the start

	stream  grpc.ServerStreamingServer[dtaskv1.WaitJobsResponse]
	outline bool
	page    *dtaskv1.WaitJobsResponse // the next message
	size    int                       // of the page, estimated
}

// parse stores which jobs to wait for. An invalid id is the id of no job.
func (w *wait) parse(ids []string) {
	w.page = &dtaskv1.WaitJobsResponse{}
	for _, text := range ids {
		id, err := parseJobID(text)
		if err != nil {
			w.page.Unknown = append(w.page.Unknown, text)
			continue
		}
		w.remaining = append(w.remaining, id)
	}
	slices.Sort(w.remaining)
	w.remaining = slices.Compact(w.remaining)
}

// scan finds the jobs that have finished.
func (w *wait) scan() {
	w.finished, w.completed, w.index, w.checked = w.finished[:0], 0, w.cfg.Machine.Index(), 0
	for part := range slices.Chunk(w.remaining, waitStride) {
		w.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
			for _, id := range part {
				state, completed, ok := st.Progress(id)
				if !ok || state.Terminal() || isForeign(st, w.caller, id) {
					w.finished = append(w.finished, id)
					continue
				}
				w.completed += uint64(completed)
			}
		})
	}
}

// allFinished reports whether all jobs have finished. It resumes at the job at which it
// stopped before, so that calling it often reads little.
func (w *wait) allFinished() bool {
	for more := true; more && w.checked < len(w.remaining); {
		part := w.remaining[w.checked:min(w.checked+waitStride, len(w.remaining))]
		w.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
			for _, id := range part {
				if state, _, ok := st.Progress(id); ok && !state.Terminal() {
					more = false
					return
				}
				w.checked++
			}
		})
	}
	return w.checked == len(w.remaining)
}

// report sends the jobs that have finished. Before it returns an error it sends those
// that it could read.
func (w *wait) report(ctx context.Context) error {
	var failed error
	for _, id := range w.finished {
		if failed = w.add(ctx, id); failed != nil {
			break
		}
	}
	if err := w.send(); err != nil {
		return err
	}
	paged := w.paged
	w.remaining = slices.DeleteFunc(w.remaining, func(id fsm.JobID) bool {
		if len(paged) == 0 || paged[0] != id {
			return false
		}
		paged = paged[1:]
		return true
	})
	w.paged = w.paged[:0]
	return failed
}

// add adds a job to the page, unless it was retried in the meantime.
func (w *wait) add(ctx context.Context, id fsm.JobID) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	job, err := w.show(id)
	known, _ := errors.AsType[*Error](err)
	switch {
	case known != nil && known.Kind == KindNotFound:
		w.page.Unknown = append(w.page.Unknown, formatJobID(id))
	case err != nil:
		return err
	case !isTerminal(job.GetState()):
		return nil
	default:
		n := proto.Size(job)
		if w.size+n > maxPageBytes && w.size > 0 {
			if err := w.send(); err != nil {
				return err
			}
		}
		w.page.Finished, w.size = append(w.page.Finished, job), w.size+n
	}
	w.paged = append(w.paged, id)
	return nil
}

// show reads and shows a job as the caller asked for.
func (w *wait) show(id fsm.JobID) (*dtaskv1.Job, error) {
	v, err := w.readJob(id)
	if err == nil && !sees(w.caller, v.job.Header) {
		err = w.missingJob(id)
	}
	if err != nil {
		return nil, err
	}
	if w.outline {
		return v.outline(), nil
	}
	return w.showJob(&v)
}

// send sends the page and starts another.
func (w *wait) send() error {
	page := w.page
	page.Remaining = uint32(len(w.remaining) - len(w.paged)) //nolint:gosec // ≤ maxCallWaits
	page.TasksCompleted, page.Freshness = w.completed, w.freshness(w.index)
	w.page, w.size = &dtaskv1.WaitJobsResponse{}, 0
	return w.stream.Send(page)
}

// awaitFinished waits until a job has finished, or until the time to repeat. Jobs that
// finish while others don't are reported together every watchInterval, and the last
// one immediately: callers that wait for all of them continue then. Nothing runs while
// no job finishes.
func (w *wait) awaitFinished(ctx context.Context, reported time.Time) error {
	next, repeat := reported.Add(watchInterval), reported.Add(watchRepeatInterval)
	for latest := repeat; ; {
		if err := w.pause(ctx, time.Until(latest), w.changes.Ended); err != nil {
			return err
		}
		now := time.Now()
		if now.Before(next) && !w.allFinished() {
			latest = next
			if err := w.pause(ctx, minWaitInterval, nil); err != nil {
				return err
			}
			continue
		}
		if w.scan(); len(w.finished) > 0 || !now.Before(repeat) {
			return nil
		}
		latest = repeat // the job had been reported already, or was retried
	}
}
