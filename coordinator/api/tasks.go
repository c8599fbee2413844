package api

import (
	"context"
	"iter"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxPageTasks bounds the tasks of one message.
const maxPageTasks = 1000

// shownTaskStates are the stored task states as callers see them.
var shownTaskStates = [...]dtaskv1.TaskState{
	fsm.Blocked:   dtaskv1.TaskState_TASK_STATE_BLOCKED,
	fsm.Scheduled: dtaskv1.TaskState_TASK_STATE_SCHEDULED,
	fsm.Pending:   dtaskv1.TaskState_TASK_STATE_PENDING,
	fsm.Assigned:  dtaskv1.TaskState_TASK_STATE_ASSIGNED,
	fsm.Completed: dtaskv1.TaskState_TASK_STATE_COMPLETED,
	fsm.Failed:    dtaskv1.TaskState_TASK_STATE_FAILED,
	fsm.Cancelled: dtaskv1.TaskState_TASK_STATE_CANCELLED,
	fsm.Dead:      dtaskv1.TaskState_TASK_STATE_DEAD,
	fsm.Lost:      dtaskv1.TaskState_TASK_STATE_LOST,
}

// ListTasks implements JobService.
func (j *jobs) ListTasks(r *dtaskv1.ListTasksRequest, stream grpc.ServerStreamingServer[dtaskv1.ListTasksResponse]) error {
	if found, err := j.listSummary(r, stream); found || err != nil {
		return err
	}
	ctx := stream.Context()
	tasks, index, err := j.openTasks(r.GetJob())
	if err != nil {
		return err
	}
	tasks.dependencies, tasks.results, tasks.history = r.GetWithDependencies(), r.GetWithResults(), r.GetWithHistory()
	first, end := uint32(0), tasks.job.Total
	if name := r.GetTask(); name != "" {
		var ok bool
		if first, end, ok = findTasks(tasks.st, tasks.job.ID, name); !ok {
			return taskNotFound(tasks.st, tasks.job.ID, name)
		}
	}
	filter, err := newTaskFilter(tasks, r)
	if err != nil {
		return err
	}
	var job *dtaskv1.Job
	if r.GetWithJob() {
		if job, err = j.jobOf(tasks, index); err != nil {
			return err
		}
	}
	page := j.firstPage(stream, index, job)
	if limit := r.GetMostUrgent(); limit > 0 {
		var urgent []uint32
		if urgent, page.selected, err = filter.mostUrgent(ctx, first, end, limit); err != nil {
			return err
		}
		for _, i := range urgent {
			if err := page.add(tasks.read(i)); err != nil {
				return err
			}
		}
		return page.send(page.tasks)
	}
	for i := range filter.selected(ctx, first, end) {
		if err := page.add(tasks.read(i)); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return page.send(page.tasks)
}

// taskPage sends tasks in pages. The caller sends the last one.
type taskPage struct {
	send     func(tasks []*dtaskv1.Task) error
	tasks    []*dtaskv1.Task
	size     int
	selected uint32 // with most_urgent: tasks that the request selects
}

// firstPage starts the pages of a listing. The first one has the freshness of a state
// with this index and, if it is not nil, the job.
func (s *Server) firstPage(stream grpc.ServerStreamingServer[dtaskv1.ListTasksResponse], index uint64, job *dtaskv1.Job) *taskPage {
	page, first := new(taskPage), true
	page.send = func(tasks []*dtaskv1.Task) error {
		resp := &dtaskv1.ListTasksResponse{Tasks: tasks}
		if first {
			resp.Freshness, resp.Selected, resp.Job, first = s.freshness(index), page.selected, job, false
		}
		return stream.Send(resp)
	}
	return page
}

// add adds a task, and sends the page before if the task does not fit.
func (p *taskPage) add(t *dtaskv1.Task) error {
	n := proto.Size(t)
	if len(p.tasks) == maxPageTasks || (p.size+n > maxPageBytes && p.size > 0) {
		if err := p.send(p.tasks); err != nil {
			return err
		}
		p.tasks, p.size = nil, 0
	}
	p.tasks, p.size = append(p.tasks, t), p.size+n
	return nil
}

// findTasks finds the tasks, from first up to but not including end, that a name means:
// an array, one task, or all tasks that execute items of a range of an array.
func findTasks(st *fsm.State, id fsm.JobID, name string) (first, end uint32, ok bool) {
	if ref, ok := st.FindArray(id, name); ok {
		return ref.Index, ref.Index + st.Span(ref), true
	}
	if ref, ok := st.FindTask(id, name); ok {
		return ref.Index, ref.Index + 1, true
	}
	for _, a := range st.Arrays(id) {
		if from, to, ok := a.Covering(name); ok && from < to {
			return a.First + from, a.First + to, true
		}
	}
	return 0, 0, false
}

// taskReader shows the tasks of one job.
type taskReader struct {
	st       *fsm.State
	job      fsm.Job
	observed map[uint32]sequencer.Observation
	reasons  map[uint32]*dtaskv1.Reason // what no worker fulfills, by policy; nil: one could run the task
	homes    map[home]string            // the workers of their keys

	dependencies, results, history bool
}

// openTasks returns a reader of the tasks of a job, and the applied index of its state.
func (s *Server) openTasks(job string) (r *taskReader, index uint64, err error) {
	id, err := jobID(job)
	if err != nil {
		return nil, 0, err
	}
	r = &taskReader{observed: s.observed(id)} // before the fork: an observed attempt is assigned in it
	r.st, r.job, index, err = s.forkJob(id)
	return r, index, err
}

func (r *taskReader) ref(i uint32) fsm.TaskRef { return fsm.TaskRef{Job: r.job.ID, Index: i} }

// state returns the state of a task as callers see it.
func (r *taskReader) state(i uint32, t fsm.AttemptState) dtaskv1.TaskState {
	switch {
	case t.State == fsm.Assigned && isRunning(t, r.observed[i]):
		return dtaskv1.TaskState_TASK_STATE_RUNNING
	case isAggregated(r.st, r.job.State, r.ref(i), t.State):
		return dtaskv1.TaskState_TASK_STATE_AGGREGATED
	}
	return shownTaskStates[t.State]
}

func (r *taskReader) read(i uint32) *dtaskv1.Task {
	ref := r.ref(i)
	t, _ := r.st.Task(ref)
	result := r.st.Result(ref)
	shown := &dtaskv1.Task{
		Id: r.st.Name(ref), Index: i, State: r.state(i, t.AttemptState()), Attempt: t.Attempt, Error: result.Error,
		StartedAt: t.StartedMS, CompletedAt: t.EndedMS, Retries: t.Failures + uint32(t.Losses), DueAt: t.DueMS,
		Type: r.st.TaskType(ref),
	}
	if a, ok := r.st.ArrayTask(ref); ok {
		shown.Array = a.Name
	}
	if waitsToStart(t.State) && t.Attempt > 0 && !r.hasRun(ref, t.Attempt) {
		shown.StartedAt = 0 // StartedMS is when it was assigned
	}
	if t.State == fsm.Pending {
		shown.PendingReason = r.pendingReason(ref)
	}
	if result.ReusedJob != 0 {
		shown.ReusedJob, shown.ReusedTask = formatJobID(result.ReusedJob), result.ReusedTask
	}
	if w := r.st.Worker(t.Worker); w != nil {
		shown.Worker = w.Name
	}
	if c, ok := r.st.Checkpoint(ref); ok {
		shown.CheckpointAt = c.AtMS
	}
	if t.State == fsm.Assigned {
		o := observation(t.AttemptState(), r.observed[i])
		if !t.StartLogged {
			shown.StartedAt = o.StartedMS // StartedMS is when it was assigned
		}
		shown.ProgressPermille, shown.ProgressText = o.Permille, o.Text
		r.showSpilled(shown, o.Spilled)
	}
	if t.State == fsm.Pending || t.State == fsm.Assigned {
		shown.KeyWorker = r.keyWorker(&t)
	}
	if r.dependencies {
		shown.Dependencies, shown.Conditions = r.st.Dependencies(ref), fsm.ProtoConditions(r.st.Conditions(ref))
		shown.Finally = t.Cleanup
	}
	if r.results {
		shown.Result = result.Data
	}
	if r.history {
		shown.History = r.attempts(ref)
	}
	return shown
}

// waitsToStart reports whether a task has no attempt and has not ended.
func waitsToStart(s fsm.TaskState) bool {
	return s == fsm.Blocked || s == fsm.Scheduled || s == fsm.Pending
}

// hasRun reports whether the last attempt of a task that waits again is in its history: it failed,
// was lost or was preempted. Others were given back by their worker, and the state does not know
// whether they had started.
func (r *taskReader) hasRun(ref fsm.TaskRef, attempt uint32) bool {
	history := r.st.History(ref)
	return len(history) > 0 && history[len(history)-1].Number == attempt
}

// attempts shows the attempts of a task that failed or were lost.
func (r *taskReader) attempts(ref fsm.TaskRef) []*dtaskv1.AttemptRecord {
	attempts := r.st.History(ref)
	list := make([]*dtaskv1.AttemptRecord, 0, len(attempts))
	for _, a := range attempts {
		record := &dtaskv1.AttemptRecord{Number: a.Number, StartedAt: a.StartedMS, EndedAt: a.EndedMS, Error: a.Error}
		if w := r.st.Worker(a.Worker); w != nil {
			record.Worker = w.Name
		}
		list = append(list, record)
	}
	return list
}

// taskFilter selects the tasks of ListTasks.
type taskFilter struct {
	tasks  *taskReader
	states map[dtaskv1.TaskState]bool // empty = all
	brief  bool                       // and the job has arrays
	// ahead is how many tasks that failed or are assigned were not visited yet.
	ahead uint32
}

func newTaskFilter(tasks *taskReader, r *dtaskv1.ListTasksRequest) (*taskFilter, error) {
	f := &taskFilter{
		tasks: tasks, states: make(map[dtaskv1.TaskState]bool),
		brief: r.GetBrief() && len(tasks.st.Arrays(tasks.job.ID)) > 0,
		ahead: tasks.job.Failed() + tasks.job.Counts[fsm.Assigned],
	}
	if n := r.GetMostUrgent(); n > maxPageTasks {
		return nil, invalid("invalid most_urgent %d: must be at most %d", n, maxPageTasks)
	}
	for _, s := range r.GetStates() {
		if _, known := dtaskv1.TaskState_name[int32(s)]; !known || s == dtaskv1.TaskState_TASK_STATE_UNSPECIFIED {
			return nil, invalid("invalid task state %d", s)
		}
		f.states[s] = true
	}
	return f, nil
}

// selected iterates over the tasks that the filter selects of those from first up to
// but not including end, and their states. It ends early when ctx is done: check that.
func (f *taskFilter) selected(ctx context.Context, first, end uint32) iter.Seq2[uint32, dtaskv1.TaskState] {
	return func(yield func(uint32, dtaskv1.TaskState) bool) {
		id := f.tasks.job.ID
		for _, a := range f.tasks.st.Arrays(id) {
			from, to := max(first, a.First), min(end, a.First+a.Count)
			if !f.brief || from >= to {
				continue
			}
			if !f.walk(ctx, first, from, false, yield) || !f.walk(ctx, from, to, true, yield) {
				return
			}
			first = to
		}
		f.walk(ctx, first, end, false, yield)
	}
}

// walk is selected for tasks that are all in an array or all outside. A brief listing
// leaves out all tasks of arrays but those that failed or run. It reports whether the
// iteration continues.
func (f *taskFilter) walk(ctx context.Context, first, end uint32, brief bool, yield func(uint32, dtaskv1.TaskState) bool) bool {
	r := f.tasks
	for i, t := range r.st.AttemptStates(r.job.ID, first, end) {
		if ended(ctx, i) != nil {
			return false
		}
		if f.brief && failedOrAssigned(t.State) {
			f.ahead--
		} else if brief {
			if f.ahead == 0 {
				return true
			}
			continue
		}
		state := r.state(i, t)
		if brief && state == dtaskv1.TaskState_TASK_STATE_ASSIGNED {
			continue
		}
		if f.matches(state) && !yield(i, state) {
			return false
		}
	}
	return true
}

func failedOrAssigned(s fsm.TaskState) bool {
	switch s {
	case fsm.Failed, fsm.Dead, fsm.Lost, fsm.Assigned:
		return true
	case fsm.Blocked, fsm.Scheduled, fsm.Pending, fsm.Completed, fsm.Cancelled:
	}
	return false
}

func (f *taskFilter) matches(s dtaskv1.TaskState) bool { return len(f.states) == 0 || f.states[s] }
