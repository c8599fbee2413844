package fsm

// cluster is what the replicas agree on about themselves and the leader.
type cluster struct {
	clusterID string
	epoch     uint64    // fencing epoch, from 1
	replicas  []Replica // ascending by server id
	term      uint64    // of the last StartTerm
	leader    string    // server id of the last StartTerm
}

// ClusterID is the id of the cluster; empty before the first leader.
func (c *cluster) ClusterID() string { return c.clusterID }

// Epoch is the fencing epoch, from 1.
func (c *cluster) Epoch() uint64 { return c.epoch }

// Term returns the Raft term of the last leader that started, and its server
// id.
func (c *cluster) Term() (term uint64, leader string) { return c.term, c.leader }

// Replica returns the record of a server id. The replica may have been
// removed from the cluster: ids are never reused.
func (c *cluster) Replica(serverID string) (Replica, bool) {
	for _, r := range c.replicas {
		if r.ServerID == serverID {
			return r, true
		}
	}
	return Replica{}, false
}

// ReplicaByInstance returns the replica with a data directory.
func (c *cluster) ReplicaByInstance(instance string) (Replica, bool) {
	for _, r := range c.replicas {
		if r.Instance == instance {
			return r, true
		}
	}
	return Replica{}, false
}

// ReplicaReplacing returns the replica that replaces a server id.
func (c *cluster) ReplicaReplacing(serverID string) (Replica, bool) {
	for _, r := range c.replicas {
		if r.Replaces == serverID && serverID != "" {
			return r, true
		}
	}
	return Replica{}, false
}

// Instance returns the data directory of a server id.
func (c *cluster) Instance(serverID string) (instance string, known bool) {
	r, known := c.Replica(serverID)
	return r.Instance, known
}
