package fsm

import dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"

// Op is one operation of a log entry. Values are data only; what they do is in
// the apply files, how they are written in codec.go. Operations on tasks carry
// items, so that a thousand completions are one operation.
type Op interface {
	kind() opKind
	apply(s *State, fx *Effects) Reason // of the first refused item; the others still apply
	encode(e *encoder)
	decode(d *decoder)
}

// opKind is the first byte of an operation in the log. Numbers are on disk:
// they are only added, never changed or reused.
type opKind uint8

const (
	opCluster opKind = iota + 1
	opReplica
	opLeaderStart
	opJobBegin
	opJobChunk
	opJobSeal
	opJobDrop
	opAssign
	opRecordStart
	opComplete
	opFail
	opRequeue
	opLose
	opDue
	opCancelJob
	opCancelTask
	opFailJob
	opFailTask
	opWorkerUp
	opWorkerDown
	opForgetWorkers
	opForgetKeys
	opForgetJobs
	opRevive
	opPurge
	opNotify
	opRecordDelivered
	opDrainWorker
	opUndrainWorker
	opCheckpoint
	opUpdate
	opRemember
	opReuse
	opForgetResults
	opJobArray
	opArchive
	opCount // the first number not in use
)

// newOp makes an empty operation of a kind, or nil if this binary does not
// know it.
func newOp(k opKind) Op {
	switch k {
	case opCluster:
		return new(SetClusterID)
	case opReplica:
		return new(Replica)
	case opLeaderStart:
		return new(StartTerm)
	case opJobBegin:
		return new(BeginUpload)
	case opJobChunk:
		return new(JobChunk)
	case opJobSeal:
		return new(SealUpload)
	case opJobDrop:
		return new(DropUpload)
	case opAssign:
		return new(Assign)
	case opRecordStart:
		return new(RecordStart)
	case opComplete:
		return new(Complete)
	case opFail:
		return new(Fail)
	case opRequeue:
		return new(Requeue)
	case opLose:
		return new(Lose)
	case opDue:
		return new(Due)
	case opCancelJob:
		return new(CancelJob)
	case opCancelTask:
		return new(CancelTask)
	case opFailJob:
		return new(FailJob)
	case opFailTask:
		return new(FailTask)
	case opWorkerUp:
		return new(RegisterWorker)
	case opWorkerDown:
		return new(MarkWorkerDown)
	case opForgetWorkers:
		return new(ForgetWorkers)
	case opForgetKeys:
		return new(ForgetKeys)
	case opForgetJobs:
		return new(ForgetJobs)
	case opRevive:
		return new(Revive)
	case opPurge:
		return new(Purge)
	case opNotify:
		return new(NotifyDeadLetters)
	case opRecordDelivered:
		return new(RecordDelivered)
	case opDrainWorker:
		return new(DrainWorker)
	case opUndrainWorker:
		return new(UndrainWorker)
	case opCheckpoint:
		return new(Checkpoint)
	case opUpdate:
		return new(Update)
	case opRemember:
		return new(RememberResults)
	case opReuse:
		return new(ReuseResults)
	case opForgetResults:
		return new(ForgetResults)
	case opJobArray:
		return new(JobArray)
	case opArchive:
		return new(Archive)
	case opCount:
	}
	return nil
}

// Cluster names the cluster; the first leader proposes it once.
type SetClusterID struct {
	ID string // 32 hexadecimal digits
}

// Replica records which instance (data folder) a server id belongs to, at
// first contact; another instance under the same id is refused from then on.
type Replica struct {
	ServerID, Instance string
	// Replaces is the server id in whose place this one came, because its folder
	// was lost; empty for all others. It is recorded once.
	Replaces string
	// Floor is a log index up to which this replica has stored all that is
	// committed: a folder that ends below it is an old copy. It only grows.
	LowWaterMark uint64
}

// LeaderStart is the first operation of a term.
type StartTerm struct {
	Term     uint64
	ServerID string
}

// JobBegin begins a job: its tasks follow in chunks, its seal makes it exist.
type BeginUpload struct {
	ID         JobID  // must be the next number
	Key        string // idempotency key; never empty
	KeyExpires int64  // ms; when the key may be forgotten
	Header     []byte // dtask.v1.JobHeader
	Total      uint32 // tasks to come, ≥ 1

	header *dtaskv1.JobHeader // Header, once it was read: a leader applies an operation twice
}

// JobChunk adds the next tasks of a job that is being uploaded.
type JobChunk struct {
	Job   JobID
	Chunk *Chunk
}

// JobArray adds an array, or the next of its items, to a job that is being
// uploaded.
type JobArray struct {
	Job   JobID
	Chunk *Chunk
}

// AddChunk is the operation that adds a chunk to an upload.
func AddChunk(job JobID, c *Chunk) Op {
	if c.IsArray() {
		return &JobArray{Job: job, Chunk: c}
	}
	return &JobChunk{Job: job, Chunk: c}
}

// JobSeal makes an uploaded job exist.
type SealUpload struct {
	Job    JobID
	Sum    uint32   // CRC-32C over the blobs of all chunks
	Digest [16]byte // of header and tasks, for the idempotency key
}

// JobDrop removes a job that was never sealed.
type DropUpload struct {
	Job JobID
}

// AssignItem gives a task to a worker.
type AssignItem struct {
	AttemptRef // Attempt is the one before plus one
	Worker     WorkerID
}

// Assign makes new live attempts.
type Assign struct{ Items []AssignItem }

// HeldItem names a live attempt and the worker that holds it.
type HeldAttempt struct {
	AttemptRef
	Worker WorkerID
}

// Begin logs that at-most-once attempts begin: from now on they are never
// repeated.
type RecordStart struct{ Items []HeldAttempt }

// CompleteItem ends a task well.
type CompleteItem struct {
	HeldAttempt
	DurationMS   uint32 // from begin to end by the worker's clock
	Result       []byte // ≤ 4 KiB
	OutputSize   int64  // bytes
	OutputSHA256 []byte // 32 bytes, or empty if there is no output
}

// Complete accepts completions.
type Complete struct{ Items []CompleteItem }

// Next is what becomes of a task after a failed attempt, as the leader decided.
type Next uint8

// What becomes of a failed task.
const (
	NextRetry Next = iota + 1 // again, at Due
	NextDead                  // retries used up
	NextFailed
)

// FailItem ends an attempt that failed.
type FailItem struct {
	HeldAttempt
	DurationMS    uint32
	Next          Next
	Due           int64 // ms; with Retry
	CountsAsRetry bool  // counts against the retries
	Error         string
}

// Fail records failures.
type Fail struct{ Items []FailItem }

// Requeue puts live attempts back without burning a retry: their worker was
// lost, was drained, or never heard of them.
type Requeue struct {
	// Lost: they ran on a worker that was lost. The loss is counted and kept in
	// the task's history.
	Lost  bool
	Items []HeldAttempt
}

// Lose ends at-most-once attempts whose fate is unknown.
type Lose struct{ Items []HeldAttempt }

// DueItem names a scheduled task by the attempt after which it waits.
type DueItem = AttemptRef

// Due makes scheduled tasks ready.
type Due struct{ Items []DueItem }

// CancelJob ends all ordinary tasks of a job.
type CancelJob struct {
	Job            JobID
	Reason         string
	IncludeCleanup bool // ends its clean-up tasks as well
}

// CancelTask ends one task, or an array, and with it all that depend on it.
type CancelTask struct {
	Task       TaskRef
	Reason     string
	WholeArray bool // all tasks of the array that the task is of
}

// FailJob ends a job as failed: its deadline has passed.
type FailJob struct {
	Job   JobID
	Error string
}

// FailTask ends a task that has no live attempt as failed: its queue time-out
// has passed.
type FailTask struct {
	Task  TaskRef
	Error string
}

// WorkerJoin makes a worker up. If it was up as another incarnation, that one's
// attempts must have been put back before.
type RegisterWorker struct {
	ID          WorkerID // the name's number, or the next one for a new name
	Name        string
	Incarnation string
	Slots       uint32
	Labels      []Label
	Resources   []Resource
	Version     string
	Address     string
}

// Label is a word that a worker says of itself.
type Label struct{ Key, Value string }

// Resource is an amount of something countable, in thousandths of a unit.
type Resource struct {
	Name   string
	Amount int64
}

// WorkerLeave makes a worker down.
type MarkWorkerDown struct {
	ID     WorkerID
	Reason string
}

// ForgetWorkers removes workers that are down.
type ForgetWorkers struct{ IDs []WorkerID }

// ForgetKeys removes idempotency keys.
type ForgetKeys struct{ Keys []string }

// Revive lets a job go on with tasks that ended without completing.
type Revive struct {
	Job JobID
	// Tasks are the indexes of those that a person asks for, ascending; empty:
	// all. What was cancelled because of them goes on with them.
	Tasks []uint32
}

// Purge takes dead letters out of the queue: they end as failed.
type Purge struct {
	Job   JobID
	Tasks []uint32 // ascending; empty: all of the job
}

// NotifyItem asks for the notice of a dead letter.
type DeadLetterNotification struct {
	Task TaskRef
	Kind NotificationKind // LetterWebhookNotice or LetterCommandNotice
}

// Notify queues notices of dead letters. The state machine knows no settings:
// the leader, which does, proposes this beside the operation that ends the task.
type NotifyDeadLetters struct{ Items []DeadLetterNotification }

// ToldItem is what became of a notice.
type Delivery struct {
	Number    uint64
	Delivered bool // else it was given up
}

// Told takes notices that were delivered or given up out of the queue.
type RecordDelivered struct{ Items []Delivery }

// ForgetJobs removes jobs that have ended.
type ForgetJobs struct{ IDs []JobID }

// DrainWorker keeps a worker, whether it is up or not, from being given anything
// new until UndrainWorker. A second one replaces deadline and reason.
type DrainWorker struct {
	ID WorkerID
	// Until is when what the worker still runs is ended and handed back, in ms;
	// above 0.
	Until  int64
	Reason string
}

// UndrainWorker lets a worker work again.
type UndrainWorker struct{ ID WorkerID }

// Checkpoint saves how far a live attempt has come.
type Checkpoint struct {
	HeldAttempt
	Saved SavedCheckpoint // Attempt and AtMS are set when it is applied
}

// RememberItem names a pure task that completed, and until when its result is
// remembered.
type RememberItem struct {
	Task    TaskRef
	Expires int64 // ms
}

// Remember keeps results of pure tasks under their keys.
type RememberResults struct{ Items []RememberItem }

// Reuse ends ready pure tasks with the results remembered under their keys.
type ReuseResults struct{ Tasks []TaskRef }

// ForgetResults removes remembered results.
type ForgetResults struct{ Keys []string }

func (*RememberResults) kind() opKind { return opRemember }
func (*ReuseResults) kind() opKind    { return opReuse }
func (*ForgetResults) kind() opKind   { return opForgetResults }
func (*JobArray) kind() opKind        { return opJobArray }

func (*SetClusterID) kind() opKind      { return opCluster }
func (*Replica) kind() opKind           { return opReplica }
func (*StartTerm) kind() opKind         { return opLeaderStart }
func (*BeginUpload) kind() opKind       { return opJobBegin }
func (*JobChunk) kind() opKind          { return opJobChunk }
func (*SealUpload) kind() opKind        { return opJobSeal }
func (*DropUpload) kind() opKind        { return opJobDrop }
func (*Assign) kind() opKind            { return opAssign }
func (*RecordStart) kind() opKind       { return opRecordStart }
func (*Complete) kind() opKind          { return opComplete }
func (*Fail) kind() opKind              { return opFail }
func (*Requeue) kind() opKind           { return opRequeue }
func (*Lose) kind() opKind              { return opLose }
func (*Due) kind() opKind               { return opDue }
func (*CancelJob) kind() opKind         { return opCancelJob }
func (*CancelTask) kind() opKind        { return opCancelTask }
func (*FailJob) kind() opKind           { return opFailJob }
func (*FailTask) kind() opKind          { return opFailTask }
func (*RegisterWorker) kind() opKind    { return opWorkerUp }
func (*MarkWorkerDown) kind() opKind    { return opWorkerDown }
func (*ForgetWorkers) kind() opKind     { return opForgetWorkers }
func (*ForgetKeys) kind() opKind        { return opForgetKeys }
func (*ForgetJobs) kind() opKind        { return opForgetJobs }
func (*Revive) kind() opKind            { return opRevive }
func (*Purge) kind() opKind             { return opPurge }
func (*NotifyDeadLetters) kind() opKind { return opNotify }
func (*RecordDelivered) kind() opKind   { return opRecordDelivered }
func (*DrainWorker) kind() opKind       { return opDrainWorker }
func (*UndrainWorker) kind() opKind     { return opUndrainWorker }
func (*Checkpoint) kind() opKind        { return opCheckpoint }
func (*Update) kind() opKind            { return opUpdate }
