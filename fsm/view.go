package fsm

import (
	"encoding/binary"
	"iter"
	"slices"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// The accessors below read the state. They are safe together, and safe with a
// concurrent Apply only through Machine or on a fork.

// Job is a job as the cluster agrees on it.
type Job struct {
	ID          JobID
	Key         string
	Version     uint32             // 1 at first, one more with each update
	Priority    dtaskv1.Priority   // that it has now; 0 = none was given
	Header      *dtaskv1.JobHeader // shared: never change it
	State       JobState
	Error       string
	Total       uint32
	SubmittedMS int64
	StartedMS   int64 // 0 = not yet
	EndedMS     int64 // 0 = not yet
	RevivedMS   int64 // when it last went on after it had ended or stopped; 0 = never
	Retries     uint64
	Recovered   uint64
	Counts      [numStates]uint32 // tasks by TaskState
	Stopping    bool              // no new attempt of an ordinary task starts
	Ordinary    uint32            // tasks that are no cleanup tasks; those have the indexes from here on
	Outcome     JobState          // what the ordinary tasks made of it; 0 while any of them is open
	Tolerated   uint32            // ordinary tasks that failed for good, if the job tolerates so many; else 0

	updates *updates
}

// CleaningUp reports whether only cleanup tasks are left to end.
func (j *Job) CleaningUp() bool { return j.Outcome != 0 && !j.State.Terminal() }

// Policies is the number of the job's policies: those of the header and, behind
// them, those that updates made. It never shrinks.
func (j *Job) Policies() uint32 { return uint32(len(j.Header.GetPolicies())) + j.updates.count() } //nolint:gosec // bounded by the header

// Policy returns a policy by the number that a Task has. Shared: never change it.
func (j *Job) Policy(number uint32) *dtaskv1.TaskPolicy { return policyOf(j.Header, j.updates, number) }

// Failed is the number of tasks that failed for good.
func (j *Job) Failed() uint32 { return j.Counts[Failed] + j.Counts[Dead] + j.Counts[Lost] }

func (j *job) view() Job {
	v := Job{
		ID: j.id, Key: j.key, Version: j.version, Priority: j.priorityNow(), updates: j.updates, Header: j.header, State: j.state, Error: j.err, Total: j.total,
		SubmittedMS: j.submitted, StartedMS: j.started, EndedMS: j.ended, RevivedMS: j.revived,
		Retries: j.retries, Recovered: j.recovered, Counts: j.counts, Stopping: j.stopping,
		Ordinary: j.ordinary, Outcome: j.outcome,
	}
	if j.toleratesFailures() {
		v.Tolerated = j.failedOrdinary()
	}
	return v
}

// Job returns a job that exists; ok is false for one that is unknown, not sealed
// or forgotten.
func (s *State) Job(id JobID) (Job, bool) {
	j := s.sealedJob(id)
	if j == nil {
		return Job{}, false
	}
	return j.view(), true
}

// Progress is the state of a job that exists and the number of its tasks that have
// completed: what of Job is cheap to look at for many.
func (s *State) Progress(id JobID) (state JobState, completed uint32, ok bool) {
	j := s.sealedJob(id)
	if j == nil {
		return 0, 0, false
	}
	return j.state, j.counts[Completed], true
}

// NextJob is the number that the next job will get.
func (s *State) NextJob() JobID { return s.nextJob }

// Jobs iterates over the jobs that exist, newest first, starting below a number;
// 0 starts at the newest.
func (s *State) Jobs(below JobID) iter.Seq[Job] {
	if below == 0 || below > s.nextJob {
		below = s.nextJob
	}
	return func(yield func(Job) bool) {
		at, found := s.jobs.find(uint64(below-1) / jobPageSize)
		if !found {
			at-- // the page below
		}
		for ; at >= 0; at-- {
			for _, j := range slices.Backward(s.jobs.pages[at].jobs[:]) {
				if j != nil && j.id < below && j.state != JobUploading && !yield(j.view()) {
					return
				}
			}
		}
	}
}

// Uploads iterates over the jobs that are begun and not sealed, oldest first.
func (s *State) Uploads() iter.Seq[JobID] {
	return func(yield func(JobID) bool) {
		for _, p := range s.jobs.pages {
			for _, j := range &p.jobs {
				if j != nil && j.state == JobUploading && !yield(j.id) {
					return
				}
			}
		}
	}
}

// Task is a task as the cluster agrees on it.
type Task struct {
	Index       uint32
	State       TaskState
	Attempt     uint32
	Worker      WorkerID // of the last attempt
	Pending     uint32   // dependencies that have not completed
	Failures    uint32   // failed attempts that counted as retries
	Losses      uint8    // attempts whose worker was lost while they ran; at most 255
	StartedMS   int64
	EndedMS     int64
	DueMS       int64  // while scheduled
	StartLogged bool   // at-most-once and its start is logged
	Policy      uint32 // number: Job.Policy
	NotBefore   int64  // ms; its first attempt does not begin earlier; 0 = at once
	Cleanup     bool   // a cleanup task
}

// Task returns a task of a job that exists.
func (s *State) Task(t TaskRef) (Task, bool) {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return Task{}, false
	}
	r, u := j.records.at(t.Index), j.updates.of(t.Index)
	v := Task{
		Index: t.Index, State: r.state, Attempt: r.attempt, Worker: r.worker, Pending: r.pending,
		Failures: r.failures, Losses: r.losses, StartedMS: r.started, EndedMS: r.ended, StartLogged: r.startLogged, NotBefore: u.notBefore,
		Cleanup: j.isCleanup(t.Index),
	}
	if v.Policy = u.policy - 1; u.policy == 0 {
		v.Policy = j.submittedPolicy(t.Index)
	}
	if r.state == Scheduled {
		v.DueMS, v.EndedMS = r.ended, 0
	}
	return v, true
}

// Live reports whether an attempt is the live one of its task and held by the
// worker. It is the cheap form of Task for the sequencer.
func (s *State) Live(h HeldAttempt) bool {
	j := s.sealedJob(h.Job)
	if j == nil || h.Index >= j.total {
		return false
	}
	r := j.records.at(h.Index)
	return r.state == Assigned && r.attempt == h.Attempt && r.worker == h.Worker
}

// Ready reports whether a task is pending, and the number of its last attempt.
func (s *State) Ready(t TaskRef) (attempt uint32, ready bool) {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return 0, false
	}
	r := j.records.at(t.Index)
	return r.attempt, r.state == Pending
}

// Glance returns the number of a task's last attempt and its state; 0 for one that
// is not there. It is the cheap form of Task for those who count.
func (s *State) AttemptState(t TaskRef) (attempt uint32, state TaskState) {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return 0, 0
	}
	r := j.records.at(t.Index)
	return r.attempt, r.state
}

// Policy returns what a task shares with others of its job; nil if there is no
// such task. Shared: never change it.
func (s *State) Policy(t TaskRef) *dtaskv1.TaskPolicy {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return nil
	}
	return j.policy(t.Index)
}

// PolicyNumber is the number of a task's policy: the cheap form of Task for the
// sequencer.
func (s *State) PolicyNumber(t TaskRef) (number uint32, known bool) {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return 0, false
	}
	return j.policyNumber(t.Index), true
}

// Name is the id that the user gave to a task; empty if there is none.
func (s *State) Name(t TaskRef) string {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return ""
	}
	return j.name(t.Index)
}

// Body is the dtask.v1.TaskBody of a task, encoded: as it was submitted, or as
// the last update left it. Shared.
func (s *State) Body(t TaskRef) []byte {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return nil
	}
	return j.body(t.Index)
}

// Submitted is the name and the encoded body of a task: Name and Body at the price
// of one. The body is shared.
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

// Dependencies are the indexes that a task waits for, ascending; the first task
// of an array stands for all of it: Span.
func (s *State) Dependencies(t TaskRef) []uint32 {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return nil
	}
	v := j.task(t.Index)
	deps := make([]uint32, 0, v.ndeps)
	v.eachDep(func(dep uint32) { deps = append(deps, dep) })
	return deps
}

// Dependents is the number of tasks that wait for a task.
func (s *State) Dependents(t TaskRef) int {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return 0
	}
	n := 0
	for _, head := range j.dependents(t.Index) {
		n += int(j.span(head))
	}
	return n
}

// FindArray finds an array by the id that the user gave to it: its first task.
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

// Span is how many tasks a dependency of a job stands for: 1, or those of the
// array of which it is the first.
func (s *State) Span(t TaskRef) uint32 {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return 0
	}
	return j.span(t.Index)
}

// FindTask finds a task by the id that the user gave to it. It reads the whole
// job: for people, not for loops.
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

// Result is what a task left behind.
type Result struct {
	Error        string // of the last failure, or why it was cancelled
	Data         []byte // inline result; shared
	OutputSize   int64
	OutputSHA256 []byte // empty if there is no output; shared
	ReusedJob    JobID  // whose task left it: this one was not run; 0 = it is its own
	ReusedTask   string
}

// Result returns what a task left behind.
func (s *State) Result(t TaskRef) Result {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return Result{}
	}
	k, b := j.notes.get(j.records.at(t.Index).note)
	var from Result
	switch k {
	case noteResult:
	case noteReused:
		d := decoder{b: b}
		from.ReusedJob, from.ReusedTask = JobID(d.u64()), d.str()
		b = d.b
	case noteError, noteAttempt, noteEnd:
		fallthrough
	default:
		return Result{Error: j.endReason(t.Index)}
	}
	size, n := binary.Varint(b)
	hash := int(b[n])
	b = b[n+1:]
	return Result{ReusedJob: from.ReusedJob, ReusedTask: from.ReusedTask, OutputSize: size, OutputSHA256: b[:hash:hash], Data: b[hash:]}
}

// Key reports what an idempotency key stands for. sealed is false while its job
// is still being uploaded.
func (s *State) Key(name string) (id JobID, digest [16]byte, sealed, known bool) {
	k, ok := s.keys.get(name)
	return k.job, k.digest, k.sealed, ok
}

// UpdateKey reports which update an idempotency key stands for, and the version of
// the job that it made; known is false also for the key of a submission.
func (s *State) UpdateKey(name string) (id JobID, version uint32, digest [16]byte, known bool) {
	k, ok := s.keys.get(name)
	return k.job, k.version, k.digest, ok && k.version > 0
}

// Keys is the number of idempotency keys that are remembered.
func (s *State) Keys() int { return s.keys.n }

// ExpiredKeys returns the sealed keys of one of KeyShards parts that expired at or
// before a time, sorted, at most limit.
func (s *State) ExpiredKeys(part int, nowMS int64, limit int) []string {
	var names []string
	for name, k := range s.keys.scan(part % KeyShards) {
		if k.sealed && k.expires <= nowMS {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names[:min(len(names), limit)]
}

// KeyShards is the number of parts of ExpiredKeys.
const KeyShards = shardCount

// JobCount is the number of jobs held, uploads included.
func (s *State) JobCount() int { return s.jobs.live }

// Worker returns a worker; nil if there is none. Shared: never change it.
func (s *State) Worker(id WorkerID) *Worker { return s.workers.get(id) }

// Held is how many live attempts a worker has.
func (s *State) LiveAttempts(id WorkerID) int {
	at, found := s.workers.at(id)
	if !found {
		return 0
	}
	return int(s.workers.held[at])
}

// WorkerByName returns the worker of a name; nil if there is none.
func (s *State) WorkerByName(name string) *Worker {
	id, ok := s.workers.names.get(name)
	if !ok {
		return nil
	}
	return s.workers.get(id)
}

// NextWorker is the number that the next new name will get.
func (s *State) NextWorker() WorkerID { return s.workers.next }

// Workers iterates over the workers in order of their numbers.
func (s *State) Workers() iter.Seq[*Worker] { return s.WorkersAfter(0) }

// WorkersAfter iterates over those with a higher number.
func (s *State) WorkersAfter(id WorkerID) iter.Seq[*Worker] {
	at, found := s.workers.at(id)
	if found {
		at++
	}
	return func(yield func(*Worker) bool) {
		for _, w := range s.workers.list[at:] {
			if !yield(w) {
				return
			}
		}
	}
}

// ClusterID is the cluster's name; empty before the first leader.
func (s *State) ClusterID() string { return s.clusterID }

// Epoch is the fencing epoch, from 1.
func (s *State) Epoch() uint64 { return s.epoch }

// Term is the Raft term of the last leader that started, and its server id.
func (s *State) Term() (term uint64, leader string) { return s.term, s.leader }

// Replica is what is recorded of a server id. It may have been removed from the
// cluster since: ids are never given to another.
func (s *State) Replica(serverID string) (Replica, bool) {
	for _, r := range s.replicas {
		if r.ServerID == serverID {
			return r, true
		}
	}
	return Replica{}, false
}

// ReplicaOf is the server that a data directory belongs to.
func (s *State) ReplicaByInstance(instance string) (Replica, bool) {
	for _, r := range s.replicas {
		if r.Instance == instance {
			return r, true
		}
	}
	return Replica{}, false
}

// Instance is the data directory that belongs to a server id.
func (s *State) Instance(serverID string) (instance string, known bool) {
	r, known := s.Replica(serverID)
	return r.Instance, known
}
