package fsm

// Op is one operation of a log entry. Each kind has a row in operations and
// stands in an op_*.go file with its fields, their encoding and its effect.
type Op interface {
	kind() opKind
	// fields encodes or decodes the operation.
	fields(c *coder)
	// apply changes the state, or rejects the operation without changing
	// anything. A List applies the items that it doesn't reject, and returns the
	// first reason.
	apply(s *State, fx *Effects) Reason
}

// opKind is the first byte of an operation in the log.
type opKind uint8

// operations has a row for each operation, at its kind. Kinds are on disk:
// never change or reuse one, or the level of one that a release has.
var operations = [...]struct {
	name  string
	make  func() Op
	since Level // the level from which on it may be proposed
}{
	1:  {"set-cluster-id", newOp[SetClusterID], 1},
	2:  {"replica", newOp[Replica], 1},
	3:  {"start-term", newOp[StartTerm], 1},
	4:  {"begin-upload", newOp[BeginUpload], 1},
	5:  {"add-chunk", newOp[AddChunk], 1},
	6:  {"seal-upload", newOp[SealUpload], 1},
	7:  {"drop-upload", newOp[DropUpload], 1},
	8:  {"assign", newOp[Assign], 1},
	9:  {"record-start", newOp[RecordStart], 1},
	10: {"complete", newOp[Complete], 1},
	11: {"fail", newOp[Fail], 1},
	12: {"requeue", newOp[Requeue], 1},
	13: {"requeue-lost", newOp[RequeueLost], 1},
	14: {"lose", newOp[Lose], 1},
	15: {"due", newOp[Due], 1},
	16: {"cancel-job", newOp[CancelJob], 1},
	17: {"cancel-task", newOp[CancelTask], 1},
	18: {"fail-job", newOp[FailJob], 1},
	19: {"fail-task", newOp[FailTask], 1},
	20: {"register-worker", newOp[RegisterWorker], 1},
	21: {"mark-worker-down", newOp[MarkWorkerDown], 1},
	22: {"forget-workers", newOp[ForgetWorkers], 1},
	23: {"drain-worker", newOp[DrainWorker], 1},
	24: {"undrain-worker", newOp[UndrainWorker], 1},
	25: {"forget-keys", newOp[ForgetKeys], 1},
	26: {"archive", newOp[Archive], 1},
	27: {"expire-history", newOp[ExpireHistory], 1},
	28: {"revive", newOp[Revive], 1},
	29: {"purge", newOp[Purge], 1},
	30: {"update", newOp[Update], 1},
	31: {"checkpoint", newOp[Checkpoint], 1},
	32: {"notify-dead-letters", newOp[NotifyDeadLetters], 1},
	33: {"record-delivered", newOp[RecordDelivered], 1},
	34: {"remember-results", newOp[RememberResults], 1},
	35: {"reuse-results", newOp[ReuseResults], 1},
	36: {"forget-results", newOp[ForgetResults], 1},
	37: {"set-level", newOp[SetLevel], 1},
	38: {"create-identity", newOp[CreateIdentity], 2},
	39: {"add-credential", newOp[AddCredential], 2},
	40: {"revoke-identity", newOp[RevokeIdentity], 2},
	41: {"drop-credential", newOp[DropCredential], 2},
	42: {"create-join-token", newOp[CreateJoinToken], 2},
	43: {"redeem-join-token", newOp[RedeemJoinToken], 2},
	44: {"revoke-join-token", newOp[RevokeJoinToken], 2},
	45: {"set-trust", newOp[SetTrust], 2},
	46: {"pin-replica", newOp[PinReplica], 2},
	47: {"forget-identities", newOp[ForgetIdentities], 2},
	48: {"record-audit-head", newOp[RecordAuditHead], 2},
	49: {"set-backup-schedule", newOp[SetBackupSchedule], 3},
	50: {"delete-backup-schedule", newOp[DeleteBackupSchedule], 3},
	51: {"record-backup", newOp[RecordBackup], 3},
	52: {"set-schedule", newOp[SetSchedule], 3},
	53: {"delete-schedule", newOp[DeleteSchedule], 3},
	54: {"pause-schedule", newOp[PauseSchedule], 3},
	55: {"resume-schedule", newOp[ResumeSchedule], 3},
	56: {"fire", newOp[Fire], 3},
	57: {"run-schedule", newOp[RunSchedule], 3},
	58: {"seal-gated", newOp[SealGated], 3},
	59: {"open-gate", newOp[OpenGate], 3},
	60: {"expire-job", newOp[ExpireJob], 3},
	61: {"set-cluster-name", newOp[SetClusterName], 3},
	62: {"set-queue", newOp[SetQueue], 3},
	63: {"delete-queue", newOp[DeleteQueue], 3},
	64: {"move-job", newOp[MoveJob], 3},
	65: {"set-limit", newOp[SetLimit], 3},
	66: {"delete-limit", newOp[DeleteLimit], 3},
	67: {"assign-alternative", newOp[AssignAlternative], 3},
}

func newOp[T any, P interface {
	*T
	Op
}]() Op {
	return P(new(T))
}

// List is an operation on items that are accepted or rejected one by one, so
// that a thousand completions are one operation. B is its behavior.
type List[T any, B behavior[T]] struct{ Items []T }

// behavior is what distinguishes the operation of a List.
type behavior[T any] interface {
	kind() opKind
	// fields encodes or decodes an item.
	fields(c *coder, it *T)
	apply(s *State, it T, fx *Effects) Reason
	// size is the length of an item's encoding, in bytes, beyond itemSize. It
	// may be overestimated.
	size(it *T) int
}

// fixedSize is the size of items without strings and bytes.
type fixedSize[T any] struct{}

func (fixedSize[T]) size(*T) int { return 0 }

func (*List[T, B]) kind() opKind {
	var b B
	return b.kind()
}

func (o *List[T, B]) fields(c *coder) {
	var b B
	list(c, &o.Items, func(it *T) { b.fields(c, it) })
}

func (o *List[T, B]) apply(s *State, fx *Effects) Reason {
	var b B
	first := Accepted
	for _, it := range o.Items {
		if r := b.apply(s, it, fx); r != Accepted && first == Accepted {
			first = r
		}
	}
	return first
}

func (o *List[T, B]) addTo(b *EntryBuilder) Reason {
	first := Accepted
	for _, it := range o.Items {
		if r := add[T, B](b, it); r != Accepted && first == Accepted {
			first = r
		}
	}
	return first
}

func (o *List[T, B]) len() int { return len(o.Items) }
