package api

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/array"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/columns"
	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

const (
	// maxKey bounds an idempotency key, in bytes.
	maxKey = 128
	// taskCost is the memory of a task while its job is received, in bytes, beside
	// its encoded form: mostly its id in the set that finds duplicates.
	taskCost = 160
)

// upload checks and encodes a job whose parts arrive one after another. It may
// be reused for another job: set started to false.
type upload struct {
	*Server
	caller  *auth.Principal
	held    int64       // bytes of Server.uploads
	idle    *time.Timer // runs while the job waits for a part
	started bool
	// isTemplate is set for the job of a schedule.
	isTemplate bool
	// isRerun is set if the header has the run of another job. It is not shared with the next
	// job, which has not asked for it.
	isRerun bool
	header  *dtaskv1.JobHeader // of this job or the previous one; nil: none
	scope   string             // namespace of that job
	refusal error              // why no new job may have this header; jobs that are stored may
	checker *spec.Checker
	encoder jobEncoder
}

// tasksCost is the memory of a part's tasks beside its encoded size.
func tasksCost(p *dtaskv1.JobPart) int {
	const number = 4 // bytes per number in memory; its encoding may have only one
	c := p.GetColumns()
	numbers := len(c.GetIdSizes()) + len(c.GetPolicies()) + len(c.GetDependencyCounts()) + len(c.GetDistances()) + len(c.GetBodySizes())
	return (len(p.GetTasks())+len(c.GetIdSizes()))*taskCost + numbers*number
}

// take reserves memory, or fails with KindBusy.
func (u *upload) take(n int64) error {
	if !u.uploads.TryAcquire(n) {
		return &Error{Kind: KindBusy, limit: limitUploads, Message: "too many submissions in progress", RetryAfter: uploadRetry}
	}
	u.held += n
	return nil
}

func (u *upload) release() {
	u.uploads.Release(u.held)
	u.held = 0
}

// add checks and encodes the tasks of a part.
func (u *upload) add(p *dtaskv1.JobPart) error {
	if !u.started {
		if err := u.begin(p); err != nil {
			return err
		}
	} else if p.GetHeader() != nil || p.GetIdempotencyKey() != "" || p.GetTotal() != 0 || p.GetGeneratedKey() || p.GetRerunOf() != "" {
		return invalid("header, idempotency_key, generated_key, total, rerun_of: must be in the first part only")
	}
	if p.GetColumns() != nil && len(p.GetTasks()) > 0 {
		return invalid("columns: tasks and columns are mutually exclusive")
	}
	tasks := uint64(u.encoder.tasks) + uint64(len(p.GetColumns().GetIdSizes()))
	for _, t := range p.GetTasks() {
		tasks += array.Tasks(t)
	}
	if total := u.encoder.s.Total; tasks > uint64(total) {
		return invalid("total: %d tasks were announced, but more were sent", total)
	}
	if p.GetColumns() != nil {
		return u.addColumns(p.GetColumns())
	}
	if faults := u.checker.Add(p.GetTasks()); faults != nil {
		return faults
	}
	for _, t := range p.GetTasks() {
		if err := u.encoder.add(t); err != nil {
			return err
		}
	}
	return nil
}

// begin handles the fields that only the first part has.
func (u *upload) begin(p *dtaskv1.JobPart) error {
	u.started = true
	if err := u.beginHeader(p); err != nil {
		return err
	}
	if n := len(p.GetIdempotencyKey()); n < 1 || n > maxKey {
		return invalid("idempotency_key: has %d bytes; must have 1 to %d", n, maxKey)
	}
	if fsm.IsScoped(p.GetIdempotencyKey()) {
		return invalid("idempotency_key: must not begin with a NUL byte")
	}
	u.encoder.s.Key = fsm.ScopedKey(u.scope, p.GetIdempotencyKey())
	if n := p.GetTotal(); n < 1 || n > spec.MaxTasks {
		return invalid("total: invalid number of tasks %d; must be 1 to %d", n, spec.MaxTasks)
	}
	if faults := u.checker.Add(nil); faults != nil {
		return faults
	}
	// Submitting a stored job again is never refused and takes no token. Keys are
	// looked up in the applied state, so that a repeat may be refused or take one
	// while the first submission is in flight.
	switch limited := u.limit.rate > 0; {
	case u.refusal == nil && !limited || u.known(u.encoder.s.Key):
		return nil
	case u.refusal != nil:
		return u.refusal
	}
	return u.limit.take(u.scope, u.header.GetOwner())
}

// beginHeader checks the header of a job, or reuses the previous one with the
// results of its check.
func (u *upload) beginHeader(p *dtaskv1.JobPart) error {
	if p.GetHeader() == nil {
		if u.header == nil || u.isRerun || p.GetRerunOf() != "" {
			return invalid("header: missing; send it in the first part")
		}
		u.encoder.again(p)
		u.checker.Next(p.GetTotal())
		return nil
	}
	u.header, u.isRerun = nil, p.GetRerunOf() != "" // until this one is accepted
	// The digest covers what was sent: coordinators with other defaults must
	// recognize the same job.
	if err := u.encoder.begin(p); err != nil {
		return err
	}
	if err := u.claim(p.GetHeader()); err != nil {
		return err
	}
	spec.Fill(p.GetHeader(), u.cfg.TaskDefaults)
	for _, n := range p.GetHeader().GetNeeds() {
		n.EndedAs = dtaskv1.JobState_JOB_STATE_UNSPECIFIED // whatever the caller says
	}
	u.checker = spec.NewChecker(p.GetHeader(), spec.CheckOptions{MaxPayload: u.cfg.MaxPayload, Total: p.GetTotal(), Readable: true, Scheduled: u.isTemplate || u.isRerun})
	if u.refusal = u.checkLevel(p.GetHeader()); u.refusal == nil {
		u.refusal = u.checkWebhook(p.GetHeader().GetWebhook())
	}
	if u.refusal == nil && u.isRerun {
		u.refusal = u.rerun(p.GetHeader(), p.GetRerunOf())
	}
	if u.refusal == nil {
		u.refusal = u.checkNames(p.GetHeader())
	}
	if u.refusal == nil {
		u.refusal = u.checkStart(p.GetHeader())
	}
	if u.refusal == nil {
		u.refusal = u.resolveNeeds(u.caller, p.GetHeader())
	}
	if err := u.encoder.header(p.GetHeader()); err != nil {
		return err
	}
	u.header = p.GetHeader()
	return nil
}

// checkNames refuses a job with a queue or a limit that the cluster does not have. A plan of the
// job fails likewise.
func (s *Server) checkNames(h *dtaskv1.JobHeader) error {
	if err := s.checkQueue(h); err != nil {
		return err
	}
	return s.checkUses(h)
}

// checkWebhook refuses a webhook that can never be called at this replica. A later
// leader may have another setting, and refuses it when it is called.
func (u *upload) checkWebhook(webhook string) error {
	if webhook == "" || u.cfg.CheckWebhook == nil {
		return nil
	}
	if err := u.cfg.CheckWebhook(webhook); err != nil {
		return refused("webhook: %v", err)
	}
	return nil
}

// known reports whether an idempotency key belongs to a job.
func (u *upload) known(key string) (known bool) {
	u.cfg.Machine.Read(func(s *fsm.State, _ uint64) { _, _, _, known = s.Key(key) })
	return known
}

// addColumns is add for tasks in columns. Only tasks that have more than a
// payload are decoded.
func (u *upload) addColumns(m *dtaskv1.TaskColumns) error {
	r, err := columns.ReadTasks(m, u.encoder.tasks)
	if err != nil {
		return invalid("%v", err)
	}
	u.checker.Expect(r.Left())
	u.encoder.expect(m)
	for r.Left() > 0 {
		t := r.Next()
		if payload, ok := taskbody.PayloadOnly(t.Body); ok {
			u.checker.AddPayloadTask(spec.PayloadTask{
				ID: t.ID, Policy: t.Policy, Dependencies: t.Dependencies, Conditions: t.Conditions, Payload: payload, BodySize: len(t.Body),
			})
			if !u.checker.Faulty() {
				u.encoder.addRow(t)
			}
			continue
		}
		task, err := taskOf(t)
		if err != nil && u.checker.Faulty() {
			break // report the faults before it
		} else if err != nil {
			return err
		}
		u.checker.AddTask(task)
		if u.checker.Faulty() {
			continue // check the others too
		}
		if err := u.encoder.add(task); err != nil {
			return err
		}
	}
	if faults := u.checker.Add(nil); faults != nil {
		return faults
	}
	return nil
}

// taskOf decodes a row.
func taskOf(t columns.Task) (*dtaskv1.TaskSpec, error) {
	task := &dtaskv1.TaskSpec{Id: t.ID, Policy: t.Policy, Dependencies: slices.Clone(t.Dependencies), Conditions: t.Conditions, Body: &dtaskv1.TaskBody{}}
	if err := proto.Unmarshal(t.Body, task.GetBody()); err != nil {
		return nil, invalid("columns: malformed body of task %s", quote(t.ID))
	}
	return task, nil
}

// seal completes the job: all parts have arrived.
func (u *upload) seal() (sequencer.Submission, error) {
	if faults := u.checker.Seal(); faults != nil {
		return sequencer.Submission{}, faults
	}
	return u.encoder.finish(), nil
}
