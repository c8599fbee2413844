package fsm

// Restoration starts a new cluster from a backup: a state of the past, after which the
// cluster has continued.
type Restoration struct {
	Recovery

	// KeepTokens keeps the identities of users and the join tokens. Otherwise they are
	// dropped: one that was revoked after the backup would be valid again.
	KeepTokens bool
	// DropWorkers drops the workers and their identities.
	DropWorkers bool
	// Revocations are those that followed the backup.
	Revocations []Revocation
}

// Restored is what a Restoration has changed.
type Restored struct {
	Index      uint64    // of the log
	Lost       []TaskRef // at-most-once tasks that ended as lost
	Requeued   []TaskRef // tasks whose attempts were live
	Identities int       // that were dropped
	JoinTokens int       // that were dropped
	Workers    int       // that were dropped
	Revocations
}

// restoredEpochs is how far the fencing epoch advances. A recovery raises it by one, so the
// cluster that was backed up stays behind however often it is recovered later.
const restoredEpochs = 1 << 20

// restoredReason is why a worker is down until it returns.
const restoredReason = "cluster restored from a backup"

// RestoreBackup changes the state to that of the new cluster. Like Recover, it is not an
// entry of a log.
func (m *Machine) RestoreBackup(r Restoration) Restored {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.skip()
	s, done := m.state, Restored{Index: m.index}
	done.Revocations = s.revoke(r.Revocations) // first: what is dropped below was known
	if !r.KeepAtMostOnce {
		done.Lost = s.loseAtMostOnce()
	}
	done.Requeued = s.requeueAll()
	if r.DropWorkers {
		done.Workers = s.dropWorkers()
	} else {
		s.markAllWorkersDown()
	}
	done.Identities = s.dropIdentities(&r)
	if !r.KeepTokens {
		done.JoinTokens = s.dropJoinTokens()
	}
	// These belong to the coordinators of the old cluster. Those of the new one have
	// certificates and audit logs of their own.
	s.trust, s.auditHeads = trust{}, auditHeads{}
	s.backups = backups{}     // its directory has the backups of the old cluster
	s.epoch += restoredEpochs // no fencing token of the old cluster is valid again
	s.found(r.Recovery)
	return done
}

// requeueAll makes the tasks of all live attempts ready again: nobody knows how these
// ended.
func (s *State) requeueAll() (requeued []TaskRef) {
	var ids []JobID
	for j := range s.Jobs(0) {
		if j.Counts[Assigned] > 0 {
			ids = append(ids, j.ID)
		}
	}
	for _, id := range ids {
		j := s.jobs.write(s.own, id)
		for i := range j.total {
			r := j.records.at(i)
			if r.state != Assigned {
				continue
			}
			h := HeldAttempt{AttemptRef{TaskRef{id, i}, r.attempt}, r.worker}
			if r.marks.startLogged() { // and the operator decided that it may run again
				s.forgetStart(j, i)
			}
			if s.requeue(h, false, nil) == Accepted {
				requeued = append(requeued, h.TaskRef)
			}
		}
	}
	return requeued
}

// forgetStart removes the logged start of an at-most-once attempt, which is live.
func (s *State) forgetStart(j *job, i uint32) {
	r := j.records.write(s.own, i)
	s.mixRecord(r)
	r.marks &^= markStartLogged
	j.running--
	s.mixRecord(r)
}

// markAllWorkersDown marks all workers down. They hold no attempts.
func (s *State) markAllWorkersDown() {
	for _, w := range s.workers.write(s.own) {
		if w.State == WorkerUp {
			(&MarkWorkerDown{ID: w.ID, Reason: restoredReason}).apply(s, nil)
		}
	}
}

// dropWorkers removes all workers, which hold no attempts.
func (s *State) dropWorkers() int {
	var ids []WorkerID
	for _, w := range s.workers.list {
		s.mixWorker(w)
		s.workers.names.delete(s.own, w.Name)
		ids = append(ids, w.ID)
	}
	s.workers.remove(s.own, ids)
	return len(ids)
}

// keeps reports whether an identity stays.
func (r *Restoration) keeps(i *Identity) bool {
	switch i.Role {
	case RoleWorker:
		return !r.DropWorkers
	case RoleReplica:
		return false // a coordinator of the old cluster
	case RoleAdmin, RoleOperator, RoleSubmitter, RoleReader, RoleMetrics, numRoles:
		return r.KeepTokens
	default:
		return r.KeepTokens
	}
}

// dropIdentities removes the identities that don't stay.
func (s *State) dropIdentities(r *Restoration) (dropped int) {
	t := &s.identities
	list, kept := t.write(s.own), 0
	for _, i := range list {
		if r.keeps(i) {
			list[kept] = i
			kept++
			continue
		}
		s.dropIdentity(i)
	}
	dropped = len(list) - kept
	clear(list[kept:])
	t.list = list[:kept]
	return dropped
}

// dropJoinTokens removes all join tokens. Their numbers are not reused.
func (s *State) dropJoinTokens() int {
	t := &s.joinTokens
	for _, x := range t.list {
		s.mixJoinToken(x)
		if x.Key != "" {
			t.keys.delete(s.own, x.Key)
		}
	}
	dropped := len(t.list)
	t.list, t.own = nil, s.own
	return dropped
}
