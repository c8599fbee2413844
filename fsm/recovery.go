package fsm

import dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"

// Recovery starts a new cluster from the state that one replica has left of another.
type Recovery struct {
	ClusterID string
	// Server and Instance are the new cluster's first replica. The records of all
	// others are dropped: their ids may be used again.
	Server, Instance string
	// KeepAtMostOnce leaves at-most-once tasks that have not ended as they are.
	// Otherwise they end as lost: another replica may know that they have started.
	KeepAtMostOnce bool
}

// recoveryGap is how far job numbers and log indexes advance, so that none of the new
// cluster is one that the old cluster has given out after this replica's last entry.
const recoveryGap = 1 << 20

// recoveredLost is why an at-most-once task ends as lost.
const recoveredLost = "cluster recovered, outcome of the attempt unknown"

// Recover changes the state to that of the new cluster, and returns its log index and
// the tasks that were lost. It is not an entry of a log: it must only be called on the
// machine of a stopped replica, whose state is then stored as a snapshot.
func (m *Machine) Recover(r Recovery) (index uint64, lost []TaskRef) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.skip()
	if !r.KeepAtMostOnce {
		lost = m.state.loseAtMostOnce()
	}
	m.state.epoch++ // no fencing token of the old cluster is valid again
	m.state.found(r)
	return m.index, lost
}

// skip advances the log index. The machine is locked.
func (m *Machine) skip() {
	m.index += recoveryGap
	m.state.own.at = m.index
}

// found makes the state that of a new cluster with one replica.
func (s *State) found(r Recovery) {
	s.clusterID = r.ClusterID
	s.replicas = []Replica{{ServerID: r.Server, Instance: r.Instance}}
	s.nextJob += recoveryGap
	s.mixString(s.clusterID)
	s.mix(s.epoch)
	s.mixString(r.Server)
	s.mixString(r.Instance)
	s.mix(uint64(s.nextJob))
}

// loseAtMostOnce ends all at-most-once tasks that have not ended.
func (s *State) loseAtMostOnce() (lost []TaskRef) {
	var ids []JobID
	for j := range s.Jobs(0) {
		if !j.State.Terminal() {
			ids = append(ids, j.ID)
		}
	}
	var fx *Effects
	for _, id := range ids {
		j := s.jobs.write(s.own, id)
		for i := range j.total {
			if j.records.at(i).state.Terminal() || j.policy(i).GetExecution() != dtaskv1.Execution_EXECUTION_AT_MOST_ONCE {
				continue
			}
			note := s.endNote(j, i, recoveredLost)
			r := s.setState(j, i, Lost)
			r.ended, r.note = s.now, note
			s.mixRecord(r)
			s.taskFailed(j, i, Lost, recoveredLost, fx)
			lost = append(lost, TaskRef{id, i})
		}
	}
	return lost
}
