package fsm

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// model is the reference model: the state machine written again from its
// description with maps, strings and loops, without sharing or counters. It is
// slow and obvious, and must agree with State after every entry.
type model struct {
	now         int64
	clusterID   string
	replicas    map[string]Replica
	term        uint64
	leader      string
	level       Level
	held        bool
	nextJob     uint64
	jobs        map[uint64]*modelJob
	keys        map[string]*modelKey
	results     map[string]modelResult
	nextWorker  uint32
	workers     map[uint32]*Worker
	ready, ends []string // effects of the current entry
	sched, seal []string
	endedJobs   []string
	revivedJobs []string
	notices     []Notification
	nextNotice  uint64
	noticed     int // in the current entry
	noticesLost int
	dead        []string
	moved       []string
	movedJobs   []string
	access      modelAccess
	untold      []*modelJob // ended jobs that the jobs which need them don't know of
	schedules   modelSchedules
	queues      modelQueues
	limits      modelLimits
	counted     map[string]uint64 // ends of tasks and jobs, by state, since level 4
}

type modelKey struct {
	job     uint64
	sealed  bool
	expires int64
	digest  [16]byte
	version uint32 // that it made
	purged  uint32
}

type modelJob struct {
	id                        uint64
	key, state, err           string
	stops, stopping           bool
	total                     int
	sum                       uint32
	tasks                     []*modelTask
	submitted, started, ended int64
	revived                   int64
	retries, requeues         uint64
	policies                  []*dtaskv1.TaskPolicy
	webhook                   string
	outcome                   string // of the ordinary tasks
	maxFailures               int
	errOf                     []int // cancelled tasks that err is about; err is then empty
	version                   uint32
	priority                  dtaskv1.Priority
	arrays                    [][]uint32 // their tasks
	cuts                      int        // chunks of the last array so far
	items                     int        // that it has
	missing                   int        // that it still needs
	template                  *Array     // of the last array
	header                    *dtaskv1.JobHeader
	queue                     string
	needs                     []modelNeed // from the seal on
	gate                      string      // closed or open; empty = none
}

type modelTask struct {
	name, state     string
	body, submitted string
	policy          uint32
	final           bool
	deps            []uint32    // of an array all of its tasks
	groups          [][]uint32  // the same, each array together
	when            []Condition // of the groups
	skipped         bool        // it is cancelled because it was not needed
	attempt, worker uint32
	failures        uint32
	begun           bool
	alternative     uint8
	started, ended  int64
	due             int64
	err, result     string
	outSize         int64
	outSHA          string
	accepted        int // completions
	reused          string
	newBody         bool // a user changed its body
	byUser          bool
	losses          uint8
	past            []Attempt // that failed or were lost
	saved           *SavedCheckpoint
	modelChange
}

// runs reports whether the start of the live attempt is logged.
func (t *modelTask) runs() bool { return t.state == "assigned" && t.begun }

func newModel() *model {
	w := &model{
		replicas: map[string]Replica{}, counted: map[string]uint64{}, jobs: map[uint64]*modelJob{}, keys: map[string]*modelKey{}, results: map[string]modelResult{},
		access: newModelAccess(), schedules: modelSchedules{next: 1}, queues: modelQueues{map[string]*modelQueue{}}, limits: modelLimits{}, workers: map[uint32]*Worker{}, level: 1, nextJob: 1, nextWorker: 1, nextNotice: 1,
	}
	w.access.owns = func(id IdentityID) bool {
		return slices.ContainsFunc(w.schedules.list, func(x *modelSchedule) bool { return x.owner == id })
	}
	w.access.retire = func(name string) WorkerID {
		for id, x := range w.workers {
			if x.Name == name {
				retired := *x
				retired.Name = fmt.Sprintf("%s#%d", name, id)
				w.workers[id] = &retired
				return WorkerID(id)
			}
		}
		return 0
	}
	return w
}

// entry applies operations and returns the first refusal as text.
func (w *model) entry(now int64, ops []Op) string {
	w.now = now
	w.ready, w.ends, w.sched, w.seal, w.endedJobs, w.revivedJobs = nil, nil, nil, nil, nil, nil
	w.noticed, w.noticesLost, w.dead, w.moved, w.movedJobs = 0, 0, nil, nil, nil
	w.access.revokedWorkers = nil
	first := "accepted"
	for _, op := range ops {
		if r := w.op(op); first == "accepted" {
			first = r
		}
		w.dropCheckpoints()
	}
	return first
}

func modelEach[T any](items []T, f func(T) string) string {
	first := "accepted"
	for _, it := range items {
		if r := f(it); first == "accepted" {
			first = r
		}
	}
	return first
}

func (w *model) op(op Op) string {
	switch op := op.(type) {
	case *SetClusterID, *Replica, *StartTerm, *SetLevel:
		return w.cluster(op)
	case *BeginUpload:
		return w.jobBegin(op)
	case *AddChunk:
		if op.Chunk.IsArray() {
			return w.jobArray(op)
		}
		return w.jobChunk(op)
	case *SealUpload:
		return w.jobSeal(op)
	case *SealGated:
		return w.sealGated(op)
	case *OpenGate:
		return w.openGate(op)
	case *ExpireJob:
		return w.expireJob(op)
	case *DropUpload:
		return w.jobDrop(op)
	case *Assign:
		return modelEach(op.Items, w.assign)
	case *AssignAlternative:
		return modelEach(op.Items, w.assignAlternative)
	case *RecordStart:
		return modelEach(op.Items, w.begin)
	case *Complete:
		return modelEach(op.Items, w.complete)
	case *Fail:
		return modelEach(op.Items, w.fail)
	case *Requeue:
		return modelEach(op.Items, func(h HeldAttempt) string { return w.requeue(h, false) })
	case *RequeueLost:
		return modelEach(op.Items, func(h HeldAttempt) string { return w.requeue(h, true) })
	case *Lose:
		return modelEach(op.Items, w.lose)
	case *Due:
		return modelEach(op.Items, w.dueNow)
	case *CancelJob:
		return w.endJob(op.Job, "cancelled", op.Reason, op.IncludeCleanup)
	case *FailJob:
		return w.endJob(op.Job, "failed", op.Error, false)
	case *CancelTask:
		return w.cancelTask(op)
	case *FailTask:
		return w.failTask(op)
	case *Revive:
		return w.revive(op)
	case *Purge:
		return w.purge(op)
	case *NotifyDeadLetters:
		return modelEach(op.Items, w.notify)
	case *RecordDelivered:
		return modelEach(op.Items, w.recordDelivered)
	case *Update:
		return w.update(op)
	case *RememberResults:
		return modelEach(op.Items, w.keepResult)
	case *ReuseResults:
		return modelEach(op.Items, w.reuse)
	case *ForgetResults:
		return modelEach(op.Items, w.forgetResult)
	case *RegisterWorker:
		return w.join(op)
	case *MarkWorkerDown:
		return w.leave(op)
	case *Checkpoint:
		return w.checkpoint(op)
	case *DrainWorker:
		return w.drain(op)
	case *UndrainWorker:
		return w.undrain(op.ID)
	case *ForgetWorkers:
		return w.forgetWorkers(op.IDs)
	case *ForgetKeys:
		return modelEach(op.Items, w.forgetKey)
	case *Archive:
		return modelEach(op.Items, w.forgetJob)
	case *ExpireHistory:
		if op.EndedBefore <= 0 {
			return "malformed"
		}
		return "accepted"
	default:
		if r, ok := w.access.op(op); ok {
			return r
		}
		if r, ok := w.schedule(op); ok {
			return r
		}
		if r, ok := w.limit(op); ok {
			return r
		}
		if r, ok := w.queue(op); ok {
			return r
		}
		panic(fmt.Sprintf("reference model does not know %T", op))
	}
}

func (w *model) cluster(op Op) string {
	switch op := op.(type) {
	case *SetClusterID:
		if w.clusterID != "" {
			return "wrong state"
		}
		if op.ID == "" {
			return "malformed"
		}
		w.clusterID = op.ID
	case *Replica:
		old, ok := w.replicas[op.ServerID]
		switch {
		case !ok:
			old = Replica{ServerID: op.ServerID, Instance: op.Instance}
		case old.Instance != op.Instance, op.Replaces != "" && old.Replaces != "" && old.Replaces != op.Replaces:
			return "wrong state"
		}
		if op.Replaces == op.ServerID {
			return "malformed"
		}
		if old.Replaces == "" {
			old.Replaces = op.Replaces
		}
		old.LowWaterMark = max(old.LowWaterMark, op.LowWaterMark)
		w.replicas[op.ServerID] = old
	case *StartTerm:
		if op.Term <= w.term {
			return "out of order"
		}
		w.term, w.leader = op.Term, op.ServerID
	case *SetLevel:
		if op.Level == 0 {
			return "malformed"
		}
		if op.Level < w.level {
			return "out of order"
		}
		w.level, w.held = op.Level, op.Held
	}
	return "accepted"
}

func (w *model) jobBegin(op *BeginUpload) string {
	header := new(dtaskv1.JobHeader)
	switch {
	case uint64(op.ID) != w.nextJob:
		return "out of order"
	case op.Key == "" || op.Total == 0:
		return "malformed"
	case proto.Unmarshal(op.Header, header) != nil || len(header.GetPolicies()) == 0 || badNeeds(header, w.nextJob):
		return "malformed"
	}
	if k := w.keys[op.Key]; k != nil && k.sealed {
		return "idempotency key used for another request"
	} else if k != nil {
		delete(w.jobs, k.job)
	}
	w.jobs[w.nextJob] = &modelJob{
		id: w.nextJob, key: op.Key, state: "uploading", total: int(op.Total), policies: header.GetPolicies(), webhook: header.GetWebhook(),
		maxFailures: int(header.GetMaxFailures()), header: header, queue: header.GetQueue(),
		stops: header.GetOnFailure() != dtaskv1.OnFailure_ON_FAILURE_CONTINUE, priority: header.GetPriority(),
	}
	w.keys[op.Key] = &modelKey{job: w.nextJob, expires: op.KeyExpires}
	w.nextJob++
	return "accepted"
}

func (w *model) upload(id JobID) (*modelJob, string) {
	j := w.jobs[uint64(id)]
	switch {
	case j == nil:
		return nil, "job not found"
	case j.state != "uploading":
		return nil, "already ended"
	}
	return j, ""
}

func (w *model) jobChunk(op *AddChunk) string {
	j, r := w.upload(op.Job)
	n := op.Chunk.Len()
	switch {
	case r != "":
		return r
	case n == 0:
		return "malformed"
	case int(op.Chunk.First) != len(j.tasks) || len(j.tasks)+n > j.total:
		return "out of order"
	}
	var tasks []*modelTask
	for i := range n {
		v := op.Chunk.at(uint32(i))
		t := &modelTask{name: string(v.name), body: string(v.body), submitted: string(v.body), policy: v.policy, state: "blocked"}
		if t.name == "" || int(t.policy) >= len(j.policies) || j.missing > 0 {
			return "malformed"
		}
		v.eachDep(func(dep uint32, c Condition) {
			t.groups, t.when = append(t.groups, j.group(dep)), append(t.when, c)
		})
		if j.inside(v) {
			return "malformed"
		}
		t.deps = slices.Concat(t.groups...)
		t.final = j.policies[t.policy].GetFinally()
		all := append(slices.Clip(j.tasks), tasks...)
		for _, before := range all {
			if before.final && !t.final {
				return "malformed"
			}
		}
		for _, d := range t.deps {
			if t.final && !all[d].final {
				return "malformed"
			}
		}
		tasks = append(tasks, t)
	}
	j.tasks = append(j.tasks, tasks...)
	j.sum = op.Chunk.Sum(j.sum)
	return "accepted"
}

func (w *model) jobSeal(op *SealUpload) string {
	j, r := w.upload(op.Job)
	switch {
	case r != "":
		return r
	case len(j.tasks) != j.total:
		return "out of order"
	case op.Sum != j.sum:
		return "malformed"
	case j.tasks[0].final:
		return "malformed"
	case w.level >= 3 && !w.queues.has(j.queue):
		return "queue not found"
	case w.level >= 3 && !w.limits.has(j.header):
		return "limit not found"
	case !w.learnNeeds(j, j.header):
		return "needed job not found"
	case j.gate != "" && !w.admits(j.header, Overlap(j.header.GetConcurrency().GetOverlap()), j.id):
		return refusedKey
	}
	w.learnNeeds(j, j.header) // a job that it needs may have been replaced
	j.state, j.submitted, j.version = "pending", w.now, 1
	w.keys[j.key].sealed, w.keys[j.key].digest, w.keys[j.key].version = true, op.Digest, j.version
	w.seal = append(w.seal, fmt.Sprint(j.id))
	w.decide(j)
	return "accepted"
}

func (w *model) jobDrop(op *DropUpload) string {
	j, r := w.upload(op.Job)
	if r != "" {
		return r
	}
	delete(w.keys, j.key)
	delete(w.jobs, j.id)
	return "accepted"
}

func (w *model) makeReady(j *modelJob) {
	for i, t := range j.tasks {
		if t.state == "blocked" && j.waits(t) == 0 && (t.final && j.outcome != "" || !t.final && !j.waitsForJobs() && !j.behindGate()) {
			w.readied(j, i, t)
		}
	}
}

func (w *model) forgetKey(name string) string {
	switch k := w.keys[name]; {
	case k == nil:
		return "key not found"
	case !k.sealed:
		return "wrong state"
	}
	delete(w.keys, name)
	return "accepted"
}

func (w *model) forgetJob(id JobID) string {
	j := w.sealed(id)
	switch {
	case j == nil:
		return "job not found"
	case !j.hasEnded():
		return "wrong state"
	}
	delete(w.jobs, j.id)
	return "accepted"
}

func (w *model) byName(name string) *Worker {
	for _, x := range slices.Collect(maps.Values(w.workers)) {
		if x.Name == name {
			return x
		}
	}
	return nil
}

func (w *model) join(op *RegisterWorker) string {
	if op.Name == "" || op.Incarnation == "" {
		return "malformed"
	}
	want := w.nextWorker
	if x := w.byName(op.Name); x != nil {
		want = uint32(x.ID)
	}
	if uint32(op.ID) != want {
		return "out of order"
	}
	if want == w.nextWorker {
		w.nextWorker++
	}
	labels, resources := slices.Clone(op.Labels), slices.Clone(op.Resources)
	slices.SortFunc(labels, func(a, b Label) int { return strings.Compare(a.Key, b.Key) })
	before := w.workers[want]
	w.workers[want] = &Worker{
		ID: op.ID, Name: op.Name, Incarnation: op.Incarnation, State: WorkerUp, Slots: op.Slots, Labels: labels, Resources: resources,
		Version: op.Version, Address: op.Address, UpSince: w.now,
	}
	if before != nil {
		w.workers[want].DrainUntil, w.workers[want].DrainReason = before.DrainUntil, before.DrainReason
	}
	return "accepted"
}

func (w *model) drain(op *DrainWorker) string {
	x := w.workers[uint32(op.ID)]
	switch {
	case op.Until <= 0 || len(op.Reason) > maxText:
		return "malformed"
	case x == nil:
		return "worker not found"
	}
	x.DrainUntil, x.DrainReason = op.Until, op.Reason
	return "accepted"
}

func (w *model) undrain(id WorkerID) string {
	x := w.workers[uint32(id)]
	switch {
	case x == nil:
		return "worker not found"
	case x.DrainUntil == 0:
		return "already ended"
	}
	x.DrainUntil, x.DrainReason = 0, ""
	return "accepted"
}

func (w *model) leave(op *MarkWorkerDown) string {
	x := w.workers[uint32(op.ID)]
	switch {
	case x == nil:
		return "worker not found"
	case x.State != WorkerUp:
		return "wrong state"
	case len(op.Reason) > maxText:
		return "malformed"
	}
	x.State, x.DownSince, x.DownReason = WorkerDown, w.now, op.Reason
	return "accepted"
}

// forgetWorkers forgets all of them or none.
func (w *model) forgetWorkers(ids []WorkerID) string {
	for at, id := range ids {
		if id == 0 || at > 0 && id <= ids[at-1] {
			return "malformed"
		}
		if r := w.mayForget(id); r != "accepted" {
			return r
		}
	}
	for _, id := range ids {
		delete(w.workers, uint32(id))
	}
	return "accepted"
}

func (w *model) mayForget(id WorkerID) string {
	x := w.workers[uint32(id)]
	switch {
	case x == nil:
		return "worker not found"
	case x.State != WorkerDown:
		return "wrong state"
	}
	for _, j := range w.jobs {
		for _, t := range j.tasks {
			if t.state == "assigned" && t.worker == uint32(id) {
				return "wrong state"
			}
		}
	}
	return "accepted"
}
