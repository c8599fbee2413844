package client

import (
	"context"
	"errors"
	"hash/maphash"
	"io"
	"iter"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Watch yields a job immediately and after each change, maybe several changes
// at once, until the job has ended. It resumes after failures and elections.
// It ends with the first error.
func (c *Client) Watch(ctx context.Context, id string) iter.Seq2[*dtaskv1.Job, error] {
	return c.watchJob(ctx, &dtaskv1.WatchJobRequest{Id: id})
}

// WatchSubmitted is Watch for a job that the caller submitted: it starts with
// the job as it was stored, or later. Watch starts with the current state, for
// which a quorum has to confirm the leader.
func (c *Client) WatchSubmitted(ctx context.Context, s Submitted) iter.Seq2[*dtaskv1.Job, error] {
	if s.Index == 0 { // the job existed before: its age is unknown
		return c.Watch(ctx, s.ID)
	}
	return c.watchJob(ctx, &dtaskv1.WatchJobRequest{Id: s.ID, FromIndex: s.Index, Consistency: dtaskv1.Consistency_CONSISTENCY_STALE})
}

func (c *Client) watchJob(ctx context.Context, req *dtaskv1.WatchJobRequest) iter.Seq2[*dtaskv1.Job, error] {
	return func(yield func(*dtaskv1.Job, error) bool) {
		var last *dtaskv1.Job
		stopped := false
		err := c.watch(ctx, proto.CloneOf(req), func(ch Change) error {
			job := ch.Job
			if same(last, job) {
				return nil
			}
			last = job
			if stopped = !yield(job, nil); stopped {
				return errDone
			}
			return nil
		})
		if err != nil && !stopped {
			yield(nil, err)
		}
	}
}

// Change is one change of a job, or several combined.
type Change struct {
	// Index is the log index of the change. Indexes only increase.
	// WatchOptions.From resumes after this change, at any time and by any client.
	Index uint64
	// Job is the job after the change. Tasks are its tasks that changed, in order.
	// Running tasks are shown as assigned, except at-most-once ones, whose start is in
	// the log.
	Job   *dtaskv1.Job
	Tasks []*dtaskv1.Task
	// Whole is set on the first change: Tasks are all tasks.
	Whole bool
}

// WatchOptions are options of Changes.
type WatchOptions struct {
	From uint64 // index of the last known change; 0 = start with the whole job
}

// Changes yields a job with its tasks, and then each change, maybe several
// combined, until the job has ended. Each change is yielded exactly once and
// in order despite failures: the combination of all changes is the job at the
// last index. It ends with the first error. ErrCompacted is returned only with
// From. Changes keeps eight bytes per task.
func (c *Client) Changes(ctx context.Context, id string, o WatchOptions) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		seen := &changeFilter{index: o.From, whole: o.From == 0, seed: maphash.MakeSeed()}
		stopped := false
		take := func(ch Change) error {
			if ch.Index <= seen.index || !seen.take(&ch) {
				return nil
			}
			if stopped = !yield(ch, nil); stopped {
				return errDone
			}
			return nil
		}
		req := &dtaskv1.WatchJobRequest{Id: id, FromIndex: o.From, WithTasks: true}
		err := c.watch(ctx, req, take)
		for errors.Is(err, ErrCompacted) && seen.whole && seen.index > 0 {
			// All tasks were yielded, so that a listing shows what has changed since.
			req.FromIndex = 0
			err = c.watch(ctx, req, take)
		}
		if err != nil && !stopped {
			yield(Change{}, err)
		}
	}
}

// changeFilter keeps what a caller of Changes has received.
type changeFilter struct {
	index uint64
	whole bool // the whole job, not only changes after an index
	job   *dtaskv1.Job
	seed  maphash.Seed
	tasks []uint64 // version of each task, by index
}

// take removes from a change what the caller has received. It reports false if
// nothing remains.
func (s *changeFilter) take(ch *Change) bool {
	fresh := ch.Tasks[:0]
	for _, task := range ch.Tasks {
		i := int(task.GetIndex())
		for len(s.tasks) <= i {
			s.tasks = append(s.tasks, 0)
		}
		if look := s.version(task); s.tasks[i] != look {
			s.tasks[i] = look
			fresh = append(fresh, task)
		}
	}
	ch.Tasks, ch.Whole = fresh, s.whole && s.index == 0
	news := len(fresh) > 0 || !same(s.job, ch.Job)
	s.index, s.job = ch.Index, ch.Job
	return news
}

func (s *changeFilter) version(task *dtaskv1.Task) uint64 {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(task)
	if err != nil {
		return 0 // can't be encoded although it was decoded: yield it again rather than never
	}
	return maphash.Bytes(s.seed, b)
}

// watch calls take for each change, and with index 0 for each repeat, until
// the job has ended or take returns an error. After failures it resumes at
// another coordinator after the last change that was taken: it updates req.
func (c *Client) watch(ctx context.Context, req *dtaskv1.WatchJobRequest, take func(Change) error) error {
	return c.do(ctx, operation{
		name: "watching job " + req.GetId(),
		run: func(ctx context.Context, t try) error {
			stream, err := t.jobs().WatchJob(ctx, req)
			if err != nil {
				return err
			}
			var tasks []*dtaskv1.Task // of pages before the last
			for {
				got, err := stream.Recv()
				if errors.Is(err, io.EOF) {
					return errCut
				} else if err != nil {
					return err
				}
				t.connected()
				tasks = append(tasks, got.GetTasks()...)
				if got.GetMore() {
					continue
				}
				if err := take(Change{Index: got.GetIndex(), Job: got.GetJob(), Tasks: tasks}); err != nil {
					return err
				}
				tasks = nil
				req.FromIndex = max(req.GetFromIndex(), got.GetIndex())
				if Ended(got.GetJob().GetState()) {
					return errDone
				}
			}
		},
	})
}

// same reports whether two responses show the same job, except for their
// freshness.
func same(a, b *dtaskv1.Job) bool {
	if a == nil {
		return false
	}
	x, y := proto.CloneOf(a), proto.CloneOf(b)
	x.Freshness, y.Freshness = nil, nil
	return proto.Equal(x, y)
}
