package fsm

import (
	"encoding/binary"
	"iter"
	"slices"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// The accessors below read the state. They are safe for concurrent use with
// each other; with a concurrent Apply only through Machine or on a fork.

// Job is a job as the replicas agree on it.
type Job struct {
	ID          JobID
	Key         string
	Version     uint32             // starts at 1; each update adds 1
	Priority    dtaskv1.Priority   // the current one; 0 = default
	Header      *dtaskv1.JobHeader // shared: never change it
	State       JobState
	Error       string
	Total       uint32
	SubmittedMS int64
	StartedMS   int64 // 0 = not yet
	EndedMS     int64 // 0 = not yet
	RevivedMS   int64 // when it was last revived; 0 = never
	Retries     uint64
	Requeues    uint64
	Digest      [16]byte          // of header and tasks, as submitted
	Counts      [numStates]uint32 // tasks by TaskState
	Running     uint32            // assigned tasks whose start is logged: AttemptState.Runs
	Stopping    bool              // no new attempt of an ordinary task starts
	Ordinary    uint32            // tasks other than cleanup tasks, which follow them
	Outcome     JobState          // of the ordinary tasks; 0 while any of them is open
	Tolerated   uint32            // ordinary tasks that failed permanently, if the job tolerates that many; else 0
	NeedEnds    []JobState        // by need of the header: how that job ended; 0 = it had not; shared: never change it
	Waiting     bool              // for a job of them
	Gated       bool              // no ordinary task is ready before the leader opens the job's gate
	WaitsFor    []JobID           // jobs with its concurrency key that a gated job waits for, ascending. Shared: never change it

	updates *updates
}

// CleaningUp reports whether only cleanup tasks are open.
func (j *Job) CleaningUp() bool { return j.Outcome != 0 && !j.State.Terminal() }

// Policies is the number of the job's policies: those of the header, followed
// by those that updates made. It never shrinks.
func (j *Job) Policies() uint32 { return uint32(len(j.Header.GetPolicies())) + j.updates.count() } //nolint:gosec // bounded by the header

// Policy returns a policy by the number in Task. Shared: never change it.
func (j *Job) Policy(number uint32) *dtaskv1.TaskPolicy { return policyOf(j.Header, j.updates, number) }

// Failed is the number of tasks that failed permanently.
func (j *Job) Failed() uint32 { return j.Counts[Failed] + j.Counts[Dead] + j.Counts[Lost] }

func (j *job) view() Job {
	v := Job{
		ID: j.id, Key: j.key, Digest: j.digest, Version: j.version, Priority: j.priorityNow(), updates: j.updates, Header: j.header, State: j.state, Error: j.err, Total: j.total,
		SubmittedMS: j.submitted, StartedMS: j.started, EndedMS: j.ended, RevivedMS: j.revived,
		Retries: j.retries, Requeues: j.requeues, Counts: j.counts, Running: j.running, Stopping: j.stopping,
		Ordinary: j.ordinary, Outcome: j.outcome, NeedEnds: j.needEnds, Waiting: j.waiting(), Gated: j.gated(),
	}
	if j.toleratesFailures() {
		v.Tolerated = j.failedOrdinary()
	}
	return v
}

// Job returns a job. ok is false if it is unknown, not sealed or forgotten.
func (s *State) Job(id JobID) (Job, bool) {
	j := s.sealedJob(id)
	if j == nil {
		return Job{}, false
	}
	return (&jobWaits{s: s}).view(j), true
}

// view returns a job with what it waits for.
func (w *jobWaits) view(j *job) Job {
	v := j.view()
	v.WaitsFor = w.of(j)
	return v
}

// Progress returns the state of a job and the number of its completed tasks.
// It is much cheaper than Job.
func (s *State) Progress(id JobID) (state JobState, completed uint32, ok bool) {
	j := s.sealedJob(id)
	if j == nil {
		return 0, 0, false
	}
	return j.state, j.counts[Completed], true
}

// NextJob is the number of the next job.
func (s *State) NextJob() JobID { return s.nextJob }

// Jobs iterates over the jobs, newest first, starting below a number; 0
// starts at the newest.
func (s *State) Jobs(below JobID) iter.Seq[Job] {
	if below == 0 || below > s.nextJob {
		below = s.nextJob
	}
	return func(yield func(Job) bool) {
		waits := &jobWaits{s: s}
		at, found := s.jobs.find(uint64(below-1) / jobPageSize)
		if !found {
			at-- // the page below
		}
		for ; at >= 0; at-- {
			for _, j := range slices.Backward(s.jobs.pages[at].jobs[:]) {
				if j != nil && j.id < below && j.state != JobUploading && !yield(waits.view(j)) {
					return
				}
			}
		}
	}
}

// Uploads iterates over the unsealed jobs, oldest first.
func (s *State) Uploads() iter.Seq[JobID] {
	return func(yield func(JobID) bool) {
		for j := range s.jobs.all() {
			if j.state == JobUploading && !yield(j.id) {
				return
			}
		}
	}
}

// Task is a task as the replicas agree on it.
type Task struct {
	Index       uint32
	State       TaskState
	Attempt     uint32
	Worker      WorkerID // of the last attempt
	Pending     uint32   // dependencies whose condition does not hold yet
	Failures    uint32   // failed attempts that count as retries: another attempt follows
	Losses      uint8    // requeued attempts whose worker was marked down; at most 255
	StartedMS   int64    // start of the last attempt; while assigned, when it was assigned or its start was logged
	EndedMS     int64
	DueMS       int64  // while scheduled
	StartLogged bool   // the start of its at-most-once attempt is logged
	Alternative uint8  // of its resources, that the last attempt takes; 0 = the first
	Policy      uint32 // number: Job.Policy
	NotBefore   int64  // ms; earliest start of the first attempt; 0 = immediately
	Cleanup     bool   // a cleanup task
}

// Task returns a task of a sealed job.
func (s *State) Task(t TaskRef) (Task, bool) {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return Task{}, false
	}
	r, u := j.records.at(t.Index), j.updates.of(t.Index)
	v := Task{
		Index: t.Index, State: r.state, Attempt: r.attempt, Worker: r.worker, Pending: r.pending,
		Failures: r.failures, Losses: r.losses, StartedMS: r.started, EndedMS: r.ended, StartLogged: r.marks.startLogged(), NotBefore: u.notBefore,
		Alternative: r.marks.alternative(),
		Cleanup:     j.isCleanup(t.Index),
	}
	if v.Policy = u.policy - 1; u.policy == 0 {
		v.Policy = j.submittedPolicy(t.Index)
	}
	if r.state == Scheduled {
		v.DueMS, v.EndedMS = r.ended, 0
	}
	return v, true
}

// AttemptState returns the last attempt of the task.
func (t *Task) AttemptState() AttemptState {
	return AttemptState{t.Attempt, t.State, t.State == Assigned && t.StartLogged}
}

// Stops reports whether no new attempt of a task may start because its job
// stops.
func (s *State) Stops(t TaskRef) bool {
	j := s.sealedJob(t.Job)
	return j != nil && t.Index < j.total && j.stops(t.Index)
}

// Live reports whether an attempt is live and held by the worker. It is
// cheaper than Task.
func (s *State) Live(h HeldAttempt) bool {
	j := s.sealedJob(h.Job)
	if j == nil || h.Index >= j.total {
		return false
	}
	r := j.records.at(h.Index)
	return r.state == Assigned && r.attempt == h.Attempt && r.worker == h.Worker
}

// Ready reports whether a task is pending, and returns the number of its last
// attempt.
func (s *State) Ready(t TaskRef) (attempt uint32, ready bool) {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return 0, false
	}
	r := j.records.at(t.Index)
	return r.attempt, r.state == Pending
}

// AttemptState returns the last attempt of a task, which is zero if the task is
// unknown. It is cheaper than Task.
func (s *State) AttemptState(t TaskRef) AttemptState {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return AttemptState{}
	}
	return j.records.at(t.Index).attemptState()
}

// Policy returns a task's policy, or nil if the task is unknown. Shared:
// never change it.
func (s *State) Policy(t TaskRef) *dtaskv1.TaskPolicy {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return nil
	}
	return j.policy(t.Index)
}

// PolicyNumber returns the number of a task's policy. It is cheaper than Task.
func (s *State) PolicyNumber(t TaskRef) (number uint32, known bool) {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return 0, false
	}
	return j.policyNumber(t.Index), true
}

// Name returns the task id that the user chose; empty if the task is unknown.
func (s *State) Name(t TaskRef) string {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return ""
	}
	return j.name(t.Index)
}

// Body returns the encoded dtask.v1.TaskBody of a task, as submitted or as
// the last update left it. Shared.
func (s *State) Body(t TaskRef) []byte {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return nil
	}
	return j.body(t.Index)
}

// NameAndBody returns what Name and Body return, in less time. The body is
// shared.
func (s *State) NameAndBody(t TaskRef) (name string, body []byte) {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return "", nil
	}
	if _, within := j.arrayAt(t.Index); within {
		return j.name(t.Index), j.body(t.Index)
	}
	v := j.task(t.Index)
	body = v.body
	if b := j.updates.of(t.Index).body; b != nil {
		body = b
	}
	return string(v.name), body
}

// Dependencies returns the indexes of a task's dependencies, ascending. The
// first task of an array stands for all of them: see Span.
func (s *State) Dependencies(t TaskRef) []uint32 {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return nil
	}
	v := j.task(t.Index)
	deps := make([]uint32, 0, v.ndeps)
	v.eachDep(func(dep uint32, _ Condition) { deps = append(deps, dep) })
	return deps
}

// Conditions returns the conditions of a task's dependencies, in the order of
// Dependencies; nil if all are WhenCompleted.
func (s *State) Conditions(t TaskRef) []Condition {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total || !j.hasConditions() {
		return nil
	}
	return j.task(t.Index).conditions()
}

// Dependents is the number of tasks that depend on a task.
func (s *State) Dependents(t TaskRef) int {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return 0
	}
	n := 0
	for _, head := range j.dependents(t.Index).heads {
		n += int(j.span(head))
	}
	return n
}

// FindArray returns the first task of an array by the id that the user chose.
func (s *State) FindArray(id JobID, name string) (TaskRef, bool) {
	j := s.sealedJob(id)
	if j == nil {
		return TaskRef{}, false
	}
	for _, run := range j.arrays {
		if j.chunks[run.chunk].array.Name == name {
			return TaskRef{id, run.first}, true
		}
	}
	return TaskRef{}, false
}

// Span is the number of tasks that a dependency stands for: those of the
// array of which it is the first task, else 1.
func (s *State) Span(t TaskRef) uint32 {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return 0
	}
	return j.span(t.Index)
}

// FindTask returns a task by the id that the user chose. It scans the job:
// don't use it in a loop.
func (s *State) FindTask(id JobID, name string) (TaskRef, bool) {
	j := s.sealedJob(id)
	if j == nil {
		return TaskRef{}, false
	}
	if i, ok := j.findInArray(name); ok {
		return TaskRef{id, i}, true
	}
	for _, c := range j.chunks {
		if c.ofArray {
			continue
		}
		for i := range c.off {
			if string(c.at(uint32(i)).name) == name { //nolint:gosec // index
				return TaskRef{id, c.First + uint32(i)}, true //nolint:gosec // index
			}
		}
	}
	return TaskRef{}, false
}

// Result is the result of a task.
type Result struct {
	Error        string // of the last failure, or why it was cancelled
	Data         []byte // inline result; shared
	OutputSize   int64
	OutputSHA256 []byte // empty if there is no output; shared
	ReusedJob    JobID  // that produced a reused result; 0 = the task ran itself
	ReusedTask   string
}

// Result returns the result of a task.
func (s *State) Result(t TaskRef) Result {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return Result{}
	}
	k, b := j.resultNote(t.Index)
	var from Result
	switch k {
	case noteResult:
	case noteReused:
		d := decoder{b: b}
		from.ReusedJob, from.ReusedTask = JobID(d.u64()), d.str()
		b = d.b
	case noteError, noteAttempt, noteEnd, noteRecovered:
		fallthrough
	default:
		return Result{Error: j.endReason(t.Index)}
	}
	size, n := binary.Varint(b)
	hash := int(b[n])
	b = b[n+1:]
	return Result{ReusedJob: from.ReusedJob, ReusedTask: from.ReusedTask, OutputSize: size, OutputSHA256: b[:hash:hash], Data: b[hash:]}
}

// JobCount is the number of jobs in the state, uploads included.
func (s *State) JobCount() int { return s.jobs.live }
