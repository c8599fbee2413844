package fsm

// Precondition is what a user's change of a job requires. It makes the change
// take effect at most once, however often it is repeated with its key, and only
// on the version of the job that the user has seen.
type Precondition struct {
	IfVersion  uint64   // required version of the job; 0 = any
	Key        string   // idempotency key, which must be unused; empty = none
	KeyExpires int64    // ms; when the key may be forgotten
	Digest     [16]byte // of the request: another request must not use the key
}

func (p *Precondition) fields(c *coder) {
	number(c, &p.IfVersion)
	c.str(&p.Key)
	c.i64(&p.KeyExpires)
	c.digest(&p.Digest)
}

// check rejects with Malformed if the key is too long, KeyConflict if it is
// known, and VersionMismatch.
func (p *Precondition) check(s *State, j *job) Reason {
	_, known := s.keys.get(p.Key)
	switch {
	case tooLong(p.Key):
		return Malformed
	case known:
		return KeyConflict
	case p.IfVersion != 0 && p.IfVersion != uint64(j.version):
		return VersionMismatch
	}
	return Accepted
}

// changed gives a job that is being changed its next version, and remembers
// the key with the outcome.
func (p *Precondition) changed(s *State, j *job, purged uint32) {
	j.version++
	if p.Key == "" {
		return
	}
	k := key{job: j.id, expires: p.KeyExpires, version: j.version, purged: purged, digest: p.Digest}
	s.keys.set(s.own, p.Key, k)
	s.mixKey(p.Key, k)
}

// KeyedChange is the outcome of a change that was made with an idempotency key.
type KeyedChange struct {
	Job     JobID
	Version uint32 // of the job after the change
	Purged  uint32 // dead letters
	Digest  [16]byte
}

// ChangeOf returns the change that was made with a key. known is false also for
// the key of a submission.
func (m *keys) ChangeOf(name string) (c KeyedChange, known bool) {
	k, _ := m.get(name)
	return KeyedChange{k.job, k.version, k.purged, k.digest}, k.version > submittedVersion
}
