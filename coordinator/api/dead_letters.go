package api

import (
	"context"
	"iter"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/array"
	"github.com/dtask/dtask/internal/statetext"
	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxScannedTasks bounds the tasks that one call of ListDeadLetters scans: as with
// maxScannedJobs, a page may be short and still have one after it.
const maxScannedTasks = 1 << 18

// ListDeadLetters implements JobService.
func (j *jobs) ListDeadLetters(ctx context.Context, r *dtaskv1.ListDeadLettersRequest) (*dtaskv1.ListDeadLettersResponse, error) {
	if r.GetJob() == "" && r.GetTask() != "" {
		return nil, invalid("task requires a job")
	}
	token, err := parsePageToken(r.GetPageToken())
	if err != nil {
		return nil, err
	}
	who := caller(ctx)
	st, index := j.cfg.Machine.Fork()
	resp := &dtaskv1.ListDeadLettersResponse{Freshness: j.freshness(index)}
	p := deadLetterPage{
		request: r, limit: pageLimit(r.GetLimit()), st: st, resp: resp,
		from:  fsm.TaskRef{Job: fsm.JobID(token.id), Index: token.index},
		shown: history.Query{Namespaces: shownNamespaces(who, r.GetNamespace())},
	}
	if r.GetJob() == "" {
		below := fsm.JobID(0)
		if p.from.Job > 0 {
			below = p.from.Job + 1
		}
		return resp, p.fill(ctx, st.Jobs(below))
	}
	id, err := jobID(r.GetJob())
	if err != nil {
		return nil, err
	}
	job, ok := st.Job(id)
	if !ok {
		// Archived jobs have no dead letters.
		head, archived, err := j.archivedJob(id)
		if err == nil && (!archived || !sees(who, head.Header)) {
			err = j.missingJob(id)
		}
		return resp, err
	}
	if !sees(who, job.Header) {
		return nil, j.missingJob(id)
	}
	if name := r.GetTask(); name != "" {
		ref, ok := st.FindTask(id, name)
		if !ok {
			return nil, taskNotFound(st, id, name)
		}
		if p.shown.InNamespaces(job.Header) {
			p.scan(&taskReader{st: st, job: job}, ref)
		}
		return resp, nil
	}
	return resp, p.fill(ctx, func(yield func(fsm.Job) bool) { yield(job) })
}

// A deadLetterPage is a page of ListDeadLetters that is being filled.
type deadLetterPage struct {
	request *dtaskv1.ListDeadLettersRequest
	limit   int
	from    fsm.TaskRef // where the page starts; job 0 = at the newest
	st      *fsm.State
	resp    *dtaskv1.ListDeadLettersResponse
	shown   history.Query // its namespaces

	jobs, tasks int // scanned
	foreign     int // jobs in namespaces that are not listed
	size        int // of the dead letters, in bytes
}

// fill adds the dead letters of jobs until there are no more or the page is full.
func (p *deadLetterPage) fill(ctx context.Context, jobs iter.Seq[fsm.Job]) error {
	for job := range jobs {
		first := fsm.TaskRef{Job: job.ID}
		if job.ID == p.from.Job {
			first = p.from
		}
		if p.foreign < maxForeignJobs && !p.shown.InNamespaces(job.Header) {
			p.foreign++
			continue
		}
		if p.full() || p.jobs == maxScannedJobs || p.foreign == maxForeignJobs {
			p.end(first)
			return nil
		}
		p.jobs++
		if more, err := p.walk(ctx, job, first); err != nil || !more {
			return err
		}
	}
	return nil
}

// walk adds the dead letters of one job; more is false if the page is full.
func (p *deadLetterPage) walk(ctx context.Context, job fsm.Job, at fsm.TaskRef) (more bool, err error) {
	tasks := &taskReader{st: p.st, job: job}
	for left := job.Counts[fsm.Dead]; at.Index < job.Total && left > 0; at.Index++ {
		if p.full() {
			p.end(at)
			return false, nil
		}
		if err := ended(ctx, at.Index); err != nil {
			return false, err
		}
		if p.scan(tasks, at) {
			left--
		}
	}
	return true, nil
}

func (p *deadLetterPage) full() bool {
	return len(p.resp.GetDeadLetters()) == p.limit || p.size > maxPageBytes || p.tasks >= maxScannedTasks
}

// end makes the next page start at a task.
func (p *deadLetterPage) end(next fsm.TaskRef) {
	p.resp.NextPageToken = pageToken{uint64(next.Job), next.Index}.String()
}

// scan adds a task if it matches, and reports whether it is dead.
func (p *deadLetterPage) scan(tasks *taskReader, ref fsm.TaskRef) (dead bool) {
	p.tasks++
	t, _ := p.st.Task(ref)
	if t.State != fsm.Dead {
		return false
	}
	if want := p.request.GetType(); want == "" || want == p.st.TaskType(ref) {
		letter := tasks.deadLetter(ref, t, p.request.GetWithHistory())
		p.size += proto.Size(letter)
		p.resp.DeadLetters = append(p.resp.DeadLetters, letter)
	}
	return true
}

// deadLetter shows a dead task.
func (r *taskReader) deadLetter(ref fsm.TaskRef, t fsm.Task, withHistory bool) *dtaskv1.DeadLetter {
	letter := &dtaskv1.DeadLetter{
		Job: formatJobID(ref.Job), JobName: r.job.Header.GetName(), Owner: r.job.Header.GetOwner(), Namespace: r.job.Header.GetNamespace(), Task: r.st.Name(ref),
		Type: r.st.TaskType(ref), DiedAt: t.EndedMS, Attempts: t.Attempt, Error: r.st.Result(ref).Error,
	}
	if withHistory {
		letter.Payload, letter.History = r.payload(ref), r.attempts(ref)
	}
	return letter
}

// payload is the payload that a task gets.
func (r *taskReader) payload(ref fsm.TaskRef) []byte {
	payload := taskbody.Encoded(r.st.Body(ref)).Payload()
	if text, ok := r.expand(ref, string(payload), true); ok {
		return []byte(text)
	}
	return payload
}

// expand replaces the expressions in a text of a task by what they stand for: the item that
// the task executes, and the run of a schedule that its job is. ok is false for tasks without
// expressions, and for tasks with several items.
func (r *taskReader) expand(ref fsm.TaskRef, text string, isPayload bool) (expanded string, ok bool) {
	if !array.Opens(text) {
		return text, false
	}
	var scope array.Scope
	if taskbody.Encoded(r.st.Body(ref)).Scheduled() {
		scope.Run = array.RunOf(sequencer.DatedRun(r.job.Header.GetRun()))
	}
	a, ok := r.st.ArrayTask(ref)
	switch {
	case !ok && scope.Run != nil:
		expanded, err := array.Expand(text, scope, false)
		return expanded, err == nil
	case !ok || a.Chunk > 1:
		return text, false
	}
	a.Each(func(index uint32, item []byte) {
		if expanded, err := array.Expand(text, array.Scope{Item: &array.Item{Index: index, JSON: item}, Run: scope.Run}, isPayload && a.JSON); err == nil {
			text = expanded
		}
	})
	return text, true
}

// PurgeDeadLetters implements JobService. Tasks that have failed have no dead letter,
// or none any longer, and are ignored; so is a job without any.
func (j *jobs) PurgeDeadLetters(ctx context.Context, r *dtaskv1.PurgeDeadLettersRequest) (*dtaskv1.PurgeDeadLettersResponse, error) {
	done, err := j.once(ctx, r, func(c change) (sequencer.ChangeResult, error) {
		s, err := j.selectTasks(ctx, c, r.GetTasks())
		if err != nil {
			return sequencer.ChangeResult{}, err
		}
		return j.purge(ctx, s)
	})
	if err != nil {
		return nil, err
	}
	return &dtaskv1.PurgeDeadLettersResponse{Purged: done.Purged, Version: done.Version, Existed: done.Existed}, nil
}

// purge purges the selected dead letters.
func (j *jobs) purge(ctx context.Context, s *selection) (sequencer.ChangeResult, error) {
	unchanged, tasks := sequencer.ChangeResult{Version: s.job.Version}, s.tasks
	if len(s.tasks) > 0 {
		tasks = slices.DeleteFunc(slices.Clone(s.tasks), func(i uint32) bool { return s.task(i).State == fsm.Failed })
		for _, i := range tasks {
			if state := s.task(i).State; state != fsm.Dead {
				return unchanged, conflict("%s is not a dead letter: it %s", describeTask(s.st, s.ref(i)), statetext.Predicate(state.String()))
			}
		}
	}
	if s.job.Counts[fsm.Dead] == 0 || len(tasks) == 0 && len(s.tasks) > 0 {
		return unchanged, nil
	}
	done, err := s.leader.Purge(ctx, fsm.Purge{Job: s.id, Tasks: tasks, Precondition: s.required}, s.generated)
	if explained := j.explainPrecondition(&s.change, err); explained != nil {
		return done, explained
	}
	if isRejected(err, fsm.WrongState) {
		return done, conflict("the dead letters of job %d have changed in the meantime; list them again", s.id)
	}
	return done, err
}

// DeadLetterView shows a task of st as ListDeadLetters does, with payload and history;
// nil if st has no such job. The caller holds the machine's lock.
func DeadLetterView(st *fsm.State, ref fsm.TaskRef) *dtaskv1.DeadLetter {
	job, ok := st.Job(ref.Job)
	if !ok {
		return nil
	}
	task, _ := st.Task(ref)
	reader := taskReader{st: st, job: job}
	return reader.deadLetter(ref, task, true)
}
