package fsm

import (
	"cmp"
	"slices"
)

// State is all that the cluster agrees on. It is changed by Apply alone. Not
// safe for concurrent use; Machine adds a lock, the sequencer owns its fork.
type State struct {
	own *ownership

	clusterID string
	epoch     uint64 // fencing epoch, from 1
	replicas  []Replica
	term      uint64 // of the last LeaderStart
	leader    string // server id of the last LeaderStart

	nextJob JobID
	jobs    jobTable
	keys    keyTable
	// lastHeader saves reading it again; it is no part of what replicas agree on.
	lastHeader header

	nextWorker  WorkerID
	workers     []*Worker // ascending by number
	workersOwn  *ownership
	heldBy      []int32 // live attempts of each of workers; follows from the records
	heldOwn     *ownership
	workerNames cowMap[WorkerID]

	checkpoints     cowMap[*SavedCheckpoint] // of tasks that have not ended, by checkpointKey
	checkpointBytes uint64                   // their costs

	notices    noticeQueue
	nextNotice uint64
	letters    cowMap[int]    // dead letters by type; follows from the records
	results    cowMap[result] // by owner, NUL, key
	// resultBytes is about the memory of results.
	resultBytes uint64

	entries uint64 // applied so far
	digest  uint64 // running digest over the effects of all of them
	now     int64  // ms; stamp of the entry that is being applied
}

// key is what an idempotency key stands for.
type key struct {
	job     JobID
	expires int64 // ms
	sealed  bool
	version uint32 // of the job that an update with this key made; 0 = of the submission
	digest  [16]byte
}

// Worker is a worker as the cluster agrees on it. Values are never changed once
// they are in the state.
type Worker struct {
	ID          WorkerID
	Name        string
	Incarnation string
	State       WorkerState
	Slots       uint32
	Labels      []Label    // sorted by key
	Resources   []Resource // sorted by name
	Version     string
	Address     string
	UpSince     int64 // ms
	DownSince   int64 // ms; 0 while up
	DownReason  string
	// DrainUntil is when what the worker runs is ended, in ms; 0 = it does not
	// drain. It outlives the worker's processes.
	DrainUntil  int64
	DrainReason string
}

// Drains reports whether the worker gets nothing new because a person said so.
func (w *Worker) Drains() bool { return w.DrainUntil != 0 }

// New makes the state before the first entry.
func New() *State {
	return &State{own: new(ownership), epoch: 1, nextJob: 1, nextWorker: 1, nextNotice: 1}
}

// Fork makes a second state that starts out equal to this one and shares all
// memory with it until either writes. Cost: one pointer for each page of jobs.
// The caller must keep Apply out while it runs.
func (s *State) Fork() *State {
	f := *s
	s.own, f.own = new(ownership), new(ownership)
	return &f
}

// writeWorkers gives the list of workers for changing.
func (s *State) writeWorkers() []*Worker {
	if s.workersOwn != s.own {
		s.workers = slices.Clone(s.workers)
		s.workersOwn = s.own
	}
	return s.workers
}

// workerAt gives where a worker stands in the list.
func (s *State) workerAt(id WorkerID) (at int, found bool) {
	if len(s.workers) == 0 {
		return 0, false
	}
	// Mostly no number between the first and the last is forgotten.
	if first := s.workers[0].ID; id >= first && int(id-first) < len(s.workers) && s.workers[id-first].ID == id {
		return int(id - first), true
	}
	return slices.BinarySearchFunc(s.workers, id, func(w *Worker, id WorkerID) int { return cmp.Compare(w.ID, id) })
}

func (s *State) worker(id WorkerID) *Worker {
	at, found := s.workerAt(id)
	if !found {
		return nil
	}
	return s.workers[at]
}

// sealedJob is a job that exists for users, or nil.
func (s *State) sealedJob(id JobID) *job {
	j := s.jobs.get(id)
	if j == nil || j.state == JobUploading {
		return nil
	}
	return j
}
