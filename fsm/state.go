package fsm

// State is the replicated state. Only Apply changes it. Not safe for
// concurrent use: Machine adds a lock, and the sequencer owns its fork. Its
// parts are embedded: their exported methods are accessors of the state.
type State struct {
	own *ownership

	cluster
	clusterName
	level
	workers

	nextJob JobID
	jobs    jobTable
	headers headerCache
	keys
	checkpoints
	results

	notifications
	deadLetters

	identities
	joinTokens
	trust
	identityChanges uint64 // of these three, since this replica started; not replicated

	auditHeads
	backups
	totals
	schedules
	namedLimits
	concurrency
	queues

	digester
	now int64 // ms; time stamp of the entry that is being applied

	endedJobs []JobID // whose end decides other jobs; empty after each operation
}

// New returns the state before the first entry.
func New() *State {
	return &State{
		own: new(ownership), nextJob: 1,
		cluster: cluster{epoch: 1}, level: level{current: 1}, workers: workers{next: 1}, notifications: notifications{next: 1},
		identities: identities{next: 1}, joinTokens: joinTokens{next: 1}, schedules: schedules{next: 1},
	}
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
