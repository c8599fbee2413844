package cli

import (
	"context"
	"slices"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxPathHistories is how many tasks of a path are asked for their earlier attempts.
const maxPathHistories = 100

// pathView is the view of the critical path of a job.
func (a *app) pathView(ctx context.Context, c *client.Client, id string) (view, error) {
	job, err := c.Job(ctx, id, a.readOptions())
	if err != nil {
		return view{}, err
	}
	var tasks jobTasks
	for t, err := range c.Tasks(ctx, id, client.TaskFilter{Dependencies: true, Stale: a.stale, Fresh: a.noteFresh}) {
		if err != nil {
			return view{}, err
		}
		tasks.add(t)
	}
	doc := document.CriticalPath{Job: id, Name: job.GetName(), State: document.JobState(job.GetState()), Tasks: []document.PathTask{}}
	now, ready := a.now().UnixMilli(), job.GetSubmittedAt()
	for i, t := range tasks.path(client.Ended(job.GetState())) {
		first := t.started
		if t.retries > 0 && i < maxPathHistories {
			first = min(first, a.firstStart(ctx, c, id, t))
		}
		link := t.link(ready, first, now)
		doc.Tasks = append(doc.Tasks, link)
		doc.TotalMS += link.WaitingMS + link.RetryingMS + link.RunningMS
		ready = t.ended
	}
	return view{doc: doc, text: func(p *show.Printer) { p.CriticalPath(&doc) }}, nil
}

// firstStart returns when the first known attempt of a task started. Without one, it is
// that of the last attempt.
func (a *app) firstStart(ctx context.Context, c *client.Client, job string, t *jobTask) int64 {
	first := t.started
	filter := client.TaskFilter{Task: t.id, History: true, Stale: a.stale, Fresh: a.noteFresh}
	list, _, err := c.MostUrgentTasks(ctx, job, filter, 1)
	if err != nil {
		return first // the path is right without it, and only counts more as waiting
	}
	for _, x := range list {
		for _, h := range x.GetHistory() {
			if at := h.GetStartedAt(); at > 0 && at < first {
				first = at
			}
		}
	}
	return first
}

// A jobTask is what a critical path needs to know of a task.
type jobTask struct {
	id, worker     string
	needs          []uint32
	ready          int64 // Unix ms, as are the others; 0 = the submission
	started, ended int64
	state          dtaskv1.TaskState
	retries        uint32
	finally        bool
}

func (t *jobTask) open() bool { return t.ended == 0 }

// link returns a task of a path that became ready and first started at these times.
func (t *jobTask) link(ready, first, now int64) document.PathTask {
	link := document.PathTask{
		ID: t.id, State: document.TaskState(t.state), Worker: t.worker, Retries: t.retries,
		ReadyAt: document.OptionalTime(ready), StartedAt: document.OptionalTime(t.started), CompletedAt: document.OptionalTime(t.ended),
	}
	end := t.ended
	if end == 0 {
		end = max(now, ready)
	}
	if t.started == 0 {
		link.WaitingMS = max(0, end-ready)
		return link
	}
	// Clocks of workers differ by some milliseconds: no part is below zero, and together
	// they end with the task.
	first = max(first, ready)
	last := max(t.started, first)
	end = max(end, last)
	link.WaitingMS, link.RetryingMS, link.RunningMS = first-ready, last-first, end-last
	return link
}

// jobTasks are the tasks of a job by index.
type jobTasks struct {
	list  []jobTask
	array string
	// last has, for the first task of each array and for each task without one, the index of
	// its task that ended last.
	last  map[uint32]uint32
	first uint32 // of the array of the last task
}

// add adds the next task.
func (j *jobTasks) add(t *dtaskv1.Task) {
	for uint32(len(j.list)) < t.GetIndex() { //nolint:gosec // at most 1,000,000
		j.list = append(j.list, jobTask{}) // unknown: nothing waits for it
	}
	i := t.GetIndex()
	j.list = append(j.list, jobTask{
		id: t.GetId(), worker: t.GetWorker(), needs: t.GetDependencies(), started: t.GetStartedAt(), ended: t.GetCompletedAt(),
		state: t.GetState(), retries: t.GetRetries(), finally: t.GetFinally(),
	})
	switch {
	case t.GetArray() == "" || t.GetArray() != j.array:
		j.array, j.first = t.GetArray(), i
	case j.list[i].ended > j.list[j.lastOf(j.first)].ended:
		if j.last == nil {
			j.last = make(map[uint32]uint32)
		}
		j.last[j.first] = i
	}
}

// lastOf returns which task of an array ended last, by the index of its first one; or a
// task without an array itself.
func (j *jobTasks) lastOf(first uint32) uint32 {
	if i, ok := j.last[first]; ok {
		return i
	}
	return first
}

// path returns the chain of tasks that determined the end of the job, in the order in which
// they ran. Tasks that never started are left out, except for the last one of a job that
// has not ended.
func (j *jobTasks) path(ended bool) (path []*jobTask) {
	at := -1
	for i := range j.list {
		t := &j.list[i]
		switch {
		case ended && t.started > 0 && (at < 0 || t.ended > j.list[at].ended):
			at = i
		case !ended && t.open() && active(t.state):
			if t.ready = 0; j.before(i) >= 0 {
				t.ready = j.list[j.before(i)].ended
			}
			if at < 0 || t.ready < j.list[at].ready {
				at = i
			}
		}
	}
	for first := true; at >= 0; first = false {
		if t := &j.list[at]; first || t.started > 0 {
			path = append(path, t)
		}
		at = j.before(at)
	}
	slices.Reverse(path)
	return path
}

// active reports whether a task in a state is ready or runs.
func active(s dtaskv1.TaskState) bool {
	switch s { //nolint:exhaustive // the others wait for a task, or have ended
	case dtaskv1.TaskState_TASK_STATE_SCHEDULED, dtaskv1.TaskState_TASK_STATE_PENDING, dtaskv1.TaskState_TASK_STATE_ASSIGNED, dtaskv1.TaskState_TASK_STATE_RUNNING:
		return true
	}
	return false
}

// before returns the index of the task that ended last of those that a task waited for;
// negative if it waited for none.
func (j *jobTasks) before(i int) int {
	at := -1
	consider := func(k int) {
		if k < i && !j.list[k].open() && (at < 0 || j.list[k].ended > j.list[at].ended) {
			at = k
		}
	}
	for _, first := range j.list[i].needs {
		if int(first) < i {
			consider(int(j.lastOf(first)))
		}
	}
	if at < 0 && j.list[i].finally {
		for k := range j.list {
			if !j.list[k].finally && j.list[k].started > 0 {
				consider(k)
			}
		}
	}
	return at
}
