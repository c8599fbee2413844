package api

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/array"
	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxLooked bounds the tasks that one call of ListDeadLetters looks at: as with
// maxScanned, a page may be short and still have one after it.
const maxLooked = 1 << 18

// ListDeadLetters implements JobService.
func (j *jobs) ListDeadLetters(ctx context.Context, r *dtaskv1.ListDeadLettersRequest) (*dtaskv1.ListDeadLettersResponse, error) {
	f, err := newLetterFilter(r)
	if err != nil {
		return nil, err
	}
	if err = j.allow(ctx, r.GetConsistency()); err != nil {
		return nil, err
	}
	st, index := j.cfg.Machine.Fork()
	resp := &dtaskv1.ListDeadLettersResponse{Freshness: j.freshness(index)}
	p := letterPage{letterFilter: f, st: st, resp: resp}
	if r.GetJob() == "" {
		below := fsm.JobID(0)
		if f.from.Job > 0 {
			below = f.from.Job + 1
		}
		return resp, p.fill(ctx, st.Jobs(below))
	}
	job, ok := st.Job(f.job)
	if !ok {
		// What is history has left the queue.
		if _, archived, err := j.archived(f.job); err != nil || archived {
			return resp, err
		}
		return nil, j.missing(f.job)
	}
	if name := r.GetTask(); name != "" {
		ref, ok := st.FindTask(f.job, name)
		if !ok {
			return nil, noSuchTask(st, f.job, name)
		}
		p.look(taskReader{st: st, job: job}, ref)
		return resp, nil
	}
	return resp, p.fill(ctx, func(yield func(fsm.Job) bool) { yield(job) })
}

// letterFilter is what ListDeadLetters looks for.
type letterFilter struct {
	kind    string // empty = all
	job     fsm.JobID
	history bool
	limit   int
	from    fsm.TaskRef // where the page begins; job 0 = at the newest
}

func newLetterFilter(r *dtaskv1.ListDeadLettersRequest) (f letterFilter, err error) {
	f = letterFilter{kind: r.GetType(), history: r.GetWithHistory(), limit: int(r.GetLimit())}
	if f.limit == 0 {
		f.limit = defaultListed
	}
	if f.limit > maxListed {
		return f, invalid("limit: %d is too many; send 1 to %d, or 0 for %d", r.GetLimit(), maxListed, defaultListed)
	}
	if r.GetJob() == "" && r.GetTask() != "" {
		return f, invalid("task: is given without its job; send that too")
	}
	if r.GetJob() != "" {
		if f.job, err = jobID(r.GetJob()); err != nil {
			return f, err
		}
	}
	if token := r.GetPageToken(); token != "" {
		if f.from, err = parseLetterToken(token); err != nil {
			return f, invalid("page_token: %s is none; send the one of the answer before", quote(token))
		}
	}
	return f, nil
}

// letterToken is the text form of where the next page begins.
func letterToken(t fsm.TaskRef) string { return fmt.Sprintf("%d/%d", t.Job, t.Index) }

func parseLetterToken(text string) (fsm.TaskRef, error) {
	job, index, _ := strings.Cut(text, "/")
	id, err := parseJobID(job)
	if err != nil {
		return fsm.TaskRef{}, err
	}
	i, err := strconv.ParseUint(index, 10, 32)
	if err != nil {
		return fsm.TaskRef{}, fmt.Errorf("reading an index: %w", err)
	}
	return fsm.TaskRef{Job: id, Index: uint32(i)}, nil
}

// A letterPage is an answer of ListDeadLetters that is being filled.
type letterPage struct {
	letterFilter

	st           *fsm.State
	resp         *dtaskv1.ListDeadLettersResponse
	jobs, looked int
	size         int // of the letters, in bytes
}

// fill adds the dead letters of jobs, until there is no more or the page is
// full.
func (p *letterPage) fill(ctx context.Context, jobs iter.Seq[fsm.Job]) error {
	for job := range jobs {
		first := fsm.TaskRef{Job: job.ID}
		if job.ID == p.from.Job {
			first = p.from
		}
		if p.full() || p.jobs == maxScanned {
			p.resp.NextPageToken = letterToken(first)
			break
		}
		p.jobs++
		if job.Counts[fsm.Dead] == 0 {
			continue
		}
		if more, err := p.walk(ctx, job, first); err != nil || !more {
			return err
		}
	}
	return nil
}

// walk adds the dead letters of one job; more is false if the page is full.
func (p *letterPage) walk(ctx context.Context, job fsm.Job, at fsm.TaskRef) (more bool, err error) {
	tasks := taskReader{st: p.st, job: job}
	for left := job.Counts[fsm.Dead]; at.Index < job.Total && left > 0; at.Index++ {
		if p.full() {
			p.resp.NextPageToken = letterToken(at)
			return false, nil
		}
		if p.looked%walkStride == 0 && ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if p.look(tasks, at) {
			left--
		}
	}
	return true, nil
}

func (p *letterPage) full() bool {
	return len(p.resp.GetDeadLetters()) == p.limit || p.size > maxPage || p.looked >= maxLooked
}

// look adds a task if it is looked for, and reports whether it is dead.
func (p *letterPage) look(tasks taskReader, ref fsm.TaskRef) (dead bool) {
	p.looked++
	t, _ := p.st.Task(ref)
	if t.State != fsm.Dead {
		return false
	}
	if kind := p.st.TaskType(ref); p.kind == "" || p.kind == kind {
		letter := tasks.letter(ref, t, kind, p.history)
		p.size += proto.Size(letter)
		p.resp.DeadLetters = append(p.resp.DeadLetters, letter)
	}
	return true
}

// letter shows a dead task.
func (r *taskReader) letter(ref fsm.TaskRef, t fsm.Task, kind string, history bool) *dtaskv1.DeadLetter {
	letter := &dtaskv1.DeadLetter{
		Job: strconv.FormatUint(uint64(ref.Job), 10), JobName: r.job.Header.GetName(), Owner: r.job.Header.GetOwner(),
		Task: r.st.Name(ref), Type: kind, DiedAt: t.EndedMS, Attempts: t.Attempt, Error: r.st.Result(ref).Error,
	}
	if history {
		letter.Payload, letter.History = r.payload(ref), r.past(ref)
	}
	return letter
}

// past shows the attempts of a task that failed or were lost.
func (r *taskReader) past(ref fsm.TaskRef) []*dtaskv1.AttemptRecord {
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

// payload is what a task was given; of an array's task with what expressions in
// it stand for, unless it executes several items.
func (r *taskReader) payload(ref fsm.TaskRef) []byte {
	template := taskbody.Encoded(r.st.Body(ref)).Payload()
	a, ok := r.st.ArrayTask(ref)
	if !ok || a.Chunk > 1 {
		return template
	}
	text := string(template)
	a.Each(func(index uint32, item []byte) {
		if expanded, err := array.Expand(text, array.Item{Index: index, JSON: item}, a.JSON); err == nil {
			text = expanded
		}
	})
	return []byte(text)
}

// PurgeDeadLetters implements JobService. It is idempotent: a task that is
// failed has no dead letter, or none any more, and is left alone; so is a job
// without any.
func (j *jobs) PurgeDeadLetters(ctx context.Context, r *dtaskv1.PurgeDeadLettersRequest) (*dtaskv1.PurgeDeadLettersResponse, error) {
	s, err := j.choose(ctx, r.GetJob(), r.GetTasks())
	if err != nil {
		return nil, err
	}
	purged := s.job.Counts[fsm.Dead]
	left := s.tasks
	if len(s.tasks) > 0 {
		state := func(i uint32) fsm.TaskState {
			t, _ := s.st.Task(fsm.TaskRef{Job: s.job.ID, Index: i})
			return t.State
		}
		left = slices.DeleteFunc(slices.Clone(s.tasks), func(i uint32) bool { return state(i) == fsm.Failed })
		for _, i := range left {
			if is := state(i); is != fsm.Dead {
				name := s.st.Name(fsm.TaskRef{Job: s.job.ID, Index: i})
				return nil, conflict("task %s of job %d is no dead letter: it is %s", quote(name), s.job.ID, is)
			}
		}
		purged = uint32(len(left)) //nolint:gosec // at most maxNamed
	}
	if purged == 0 {
		return &dtaskv1.PurgeDeadLettersResponse{}, nil
	}
	err = s.leader.Purge(ctx, s.job.ID, left)
	if isWrongState(err) {
		return nil, conflict("the dead letters of job %d have changed meanwhile; list them again", s.job.ID)
	}
	return &dtaskv1.PurgeDeadLettersResponse{Purged: purged}, err
}
