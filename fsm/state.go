package fsm

// State is the replicated state. Only Apply changes it. Not safe for
// concurrent use: Machine adds a lock, and the sequencer owns its fork.
type State struct {
	own *ownership

	clusterID string
	epoch     uint64 // fencing epoch, from 1
	replicas  []Replica
	term      uint64 // of the last StartTerm
	leader    string // server id of the last StartTerm

	nextJob JobID
	jobs    jobTable
	keys    keyTable
	// lastHeader saves decoding it again. Replicas need not agree on it.
	lastHeader header

	workers workerTable

	checkpoints     cowMap[*SavedCheckpoint] // of tasks that have not ended, by checkpointKey
	checkpointBytes uint64                   // their costs

	notifications    notificationQueue
	nextNotification uint64
	deadLetters      cowMap[int]    // by type; follows from the records
	results          cowMap[result] // by owner, NUL, key
	resultBytes      uint64         // approximate memory of results

	entries uint64 // applied so far
	digest  uint64 // running digest over the effects of all of them
	now     int64  // ms; time stamp of the entry that is being applied
}

// key is the meaning of an idempotency key.
type key struct {
	job     JobID
	expires int64 // ms
	sealed  bool
	version uint32 // of the job that an update with this key made; 0 = of the submission
	digest  [16]byte
}

// New returns the state before the first entry.
func New() *State {
	return &State{own: new(ownership), epoch: 1, nextJob: 1, nextNotification: 1, workers: workerTable{next: 1}}
}

// Fork returns a second state that equals this one and shares all memory with
// it until either writes. Cost: one pointer for each page of jobs. Apply must
// not run during the call.
func (s *State) Fork() *State {
	f := *s
	s.own, f.own = new(ownership), new(ownership)
	return &f
}

// sealedJob returns a job that exists for users, or nil.
func (s *State) sealedJob(id JobID) *job {
	j := s.jobs.get(id)
	if j == nil || j.state == JobUploading {
		return nil
	}
	return j
}
