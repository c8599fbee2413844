package coordinator

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/tlsconf"
)

// pinInterval separates two passes over the keys of the members.
const pinInterval = time.Second

// pinner is the leader's duty that records the keys of the members' certificates: once a
// key is recorded, no connection is accepted from another one. The key of a coordinator
// that joins is recorded before it starts; for one with a certificate of dtaskctl tls issue,
// the first key counts that this leader has accepted. A recorded key is never replaced,
// because a replica that was away would refuse the new one and could not learn of it. Only
// a leader without other members, such as after dtaskd recover, replaces its own.
type pinner struct {
	serverID string
	own      func() *tlsconf.Replica // nil: plaintext, and there are no keys
	machine  *fsm.Machine
	members  func() []raftnode.Server
	proven   func(serverID string) (certified string, key [32]byte, ok bool)
	recorder func() keyRecorder // the nil interface until the term has a sequencer
	interval time.Duration
	log      *slog.Logger
}

// keyRecorder records the keys of a replica, in place of those before.
type keyRecorder interface {
	PinReplica(ctx context.Context, serverID string, keys ...[32]byte) error
}

var _ keyRecorder = (*sequencer.Sequencer)(nil)

// pinner makes the duty.
func (r *replica) pinner(node *raftnode.Node) *pinner {
	p := &pinner{
		serverID: r.dir.serverID, machine: r.machine, members: r.servers, proven: node.PeerKey,
		recorder: func() keyRecorder { return orNil[keyRecorder](r.leadership.term.Load()) },
		interval: r.cfg.TimeScale.Scale(pinInterval), log: r.log,
	}
	if r.security != nil {
		p.own = r.security.watcher.Current
	}
	return p
}

// Name implements leader.Duty.
func (*pinner) Name() string { return "keys of members" }

// Run implements leader.Duty.
func (p *pinner) Run(ctx context.Context, _ uint64) error {
	tick := time.NewTicker(p.interval)
	defer tick.Stop()
	for {
		if p.own != nil {
			p.record(ctx)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// record records the keys that are missing. What fails is repeated by the next pass, or by
// the next leader.
func (p *pinner) record(ctx context.Context) {
	recorder := p.recorder()
	if recorder == nil || !p.supported() {
		return
	}
	members := p.members()
	for _, m := range members {
		certified, key, known := p.keyOf(m.ID)
		recorded := recordedKeys(p.machine, certified)
		switch {
		case !known || slices.Contains(recorded, key):
			continue
		case len(recorded) > 0 && (m.ID != p.serverID || len(members) > 1):
			continue
		}
		if err := recorder.PinReplica(ctx, certified, key); err != nil {
			p.log.DebugContext(ctx, "key of a replica not recorded yet", "server_id", certified, "err", err)
			continue
		}
		p.log.InfoContext(ctx, "key of a replica recorded", "server_id", certified)
	}
}

// supported reports whether all replicas know the operation.
func (p *pinner) supported() (ok bool) {
	p.machine.Read(func(st *fsm.State, _ uint64) { ok = st.Level() >= fsm.OpLevel((*fsm.PinReplica)(nil)) })
	return ok
}

// keyOf returns the server id in the certificate of a member, and the key.
func (p *pinner) keyOf(serverID string) (certified string, key [32]byte, known bool) {
	if serverID != p.serverID {
		return p.proven(serverID)
	}
	own := p.own()
	return own.ServerID, tlsconf.KeyHash(own.Cert), true
}

// recordedKeys returns the keys that the state has for the server id in a certificate.
func recordedKeys(machine *fsm.Machine, certified string) (keys [][32]byte) {
	machine.Read(func(st *fsm.State, _ uint64) { keys = st.ReplicaKeys(certified) })
	return keys
}

// peerKeys returns the keys that the replica with a certificate may have; none if they are
// not recorded.
func (r *replica) peerKeys(certified string) [][32]byte { return recordedKeys(r.machine, certified) }

// wasMember reports whether the state shows that a server has been a member. The record of
// a server follows its membership in the log, except for one that replaces another: that
// one is a member once it has stored something.
func (r *replica) wasMember(serverID string) bool {
	var rec fsm.Replica
	known := false
	r.machine.Read(func(st *fsm.State, _ uint64) { rec, known = st.Replica(serverID) })
	return known && (rec.Replaces == "" || rec.LowWaterMark > 0)
}
