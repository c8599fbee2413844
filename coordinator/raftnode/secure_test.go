package raftnode

import (
	"context"
	"crypto/x509"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dtask/dtask/internal/tlsconf"
)

// newSecureNetwork is a network whose replicas use TLS.
func newSecureNetwork(tb testing.TB) *network {
	tb.Helper()
	ca, err := tlsconf.NewCA(tlsconf.NewClusterID(), time.Now())
	if err != nil {
		tb.Fatal(err)
	}
	w := newNetwork()
	w.ca, w.clocks, w.certs = ca, make(map[string]time.Time), make(map[string]*atomic.Pointer[tlsconf.Replica])
	return w
}

// certify issues the certificate of a replica by the CA of the network.
func (w *network) certify(tb testing.TB, id string, trusted ...*tlsconf.CA) {
	tb.Helper()
	key, err := tlsconf.NewKey()
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := w.ca.IssueReplica(tlsconf.ReplicaRequest{ServerID: id, Key: key.Public()}, time.Now())
	if err != nil {
		tb.Fatal(err)
	}
	var roots []*x509.Certificate
	for _, ca := range trusted {
		roots = append(roots, ca.Cert)
	}
	dir := tb.TempDir()
	if err := tlsconf.Save(dir, cert, key, roots...); err != nil {
		tb.Fatal(err)
	}
	r, err := tlsconf.LoadReplica(dir)
	if err != nil {
		tb.Fatal(err)
	}
	w.certs[id].Store(r)
}

// peering issues the first certificate of a replica.
func (w *network) peering(tb testing.TB, id string) *tlsconf.Peering {
	tb.Helper()
	w.certs[id] = new(atomic.Pointer[tlsconf.Replica])
	w.certify(tb, id, w.ca)
	p := &tlsconf.Peering{Source: w.certs[id].Load}
	if now, wrong := w.clocks[id]; wrong {
		p.Now = func() time.Time { return now }
	}
	return p
}

// With certificates that are not valid by its clock, a replica follows, leads, and takes
// part in a quick election.
func TestAWrongClockOfOneReplicaChangesNothing(t *testing.T) {
	t.Parallel()
	w := newSecureNetwork(t)
	w.clocks["n2"] = time.Unix(0, 0)
	c := newClusterOn(t, w, 3, slow)
	wrong := c[1]
	first := c.leader(t)
	first.propose(t, 1, 10)
	if first != wrong {
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		if err := first.TransferTo(ctx, wrong.id); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the replica with the wrong clock leads", wrong.Leading)
	c.leader(t).propose(t, 11, 10)
	c.watched(t, wrong)
	wrong.kill()
	next := c.leader(t, wrong)
	next.propose(t, 21, 10)
	wrong.revive(t)
	c.watched(t, next)
	for _, n := range c {
		n.holds(t, 30)
		for reason, refused := range n.Stats().PeersRefused {
			if refused > 0 && reason != "preface" { // connections may end while they are opened
				t.Errorf("%s refused %d peers: %s", n.id, refused, reason)
			}
		}
	}
	if n := c.quickElections(); n == 0 {
		t.Error("no quick election")
	}
	c.wantNoFatals(t)
}

// All connections of a cluster break within a moment. Each replica opens its own again.
func TestTheEndOfAllConnectionsOfADroppedCAElectsNobody(t *testing.T) {
	t.Parallel()
	w := newSecureNetwork(t)
	c := newClusterOn(t, w, 3, slow)
	leader := c.leader(t)
	c.watched(t, leader)
	term := leader.Term()
	id, err := w.ca.ClusterID()
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		next, err := tlsconf.NewCA(id, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		old := w.ca
		w.ca = next
		for _, trusted := range [][]*tlsconf.CA{{next, old}, {next}} {
			for _, n := range c {
				w.certify(t, n.id, trusted...)
			}
		}
		closed := 0
		for _, n := range c {
			closed += n.mux.CloseUntrusted()
		}
		if closed == 0 {
			t.Error("no connection was closed")
		}
		c.watched(t, leader)
	}
	c.stillLeads(t, leader, term)
	for _, n := range c {
		// One that was being opened meanwhile closes itself.
		eventually(t, n.id+" has no connection with a certificate of a dropped CA", func() bool { return n.mux.Untrusted() == 0 })
	}
	c.wantNoFatals(t)
}

// newRemembered starts three replicas that know each other's instances, and that each was
// a member, as from the replicated state.
func newRemembered(tb testing.TB, w *network, tune func(*Config)) cluster {
	tb.Helper()
	c := cluster{newTestNode(tb, "n1", w), newTestNode(tb, "n2", w), newTestNode(tb, "n3", w)}
	instances := make(map[string]string)
	for _, n := range c {
		instances[n.id] = n.identity.Identity().Instance
	}
	peers := c.servers()
	for _, n := range c {
		n.peers = peers
		n.known = func(id string) (string, bool) { instance, ok := instances[id]; return instance, ok }
		n.tune = func(cfg *Config) {
			tune(cfg)
			cfg.WasMember = func(id string) bool { _, ok := instances[id]; return ok }
		}
		n.start(tb, peers)
	}
	return c
}

func TestARemovedReplicaIsRefusedOnceItsRemovalIsCommitted(t *testing.T) {
	t.Parallel()
	w := newSecureNetwork(t)
	c := newRemembered(t, w, slow)
	leader := c.leader(t)
	leader.propose(t, 1, 10)
	gone := c.others(leader)[1]
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	w.isolate(gone.address)
	if err := leader.Remove(ctx, gone.id); err != nil {
		t.Fatal(err)
	}
	w.heal(gone.address)
	eventually(t, "the removed replica is refused, and knows", func() bool {
		refused := uint64(0)
		for _, n := range c.others(gone) {
			refused += n.Stats().PeersRefused["removed"]
		}
		return refused > 0 && gone.Stats().PeersRefused["by_peer"] > 0
	})
	leader.propose(t, 11, 10)
	for _, n := range c.others(gone) {
		n.holds(t, 20)
	}
	c.wantNoFatals(t)
}

// The removal may fail, and the server that it would remove may be elected.
func TestAReplicaIsNotRefusedBeforeItsRemovalIsCommitted(t *testing.T) {
	t.Parallel()
	w := newSecureNetwork(t)
	c := newRemembered(t, w, func(*Config) {})
	leader := c.leader(t)
	leader.propose(t, 1, 10)
	others := c.others(leader)
	for _, n := range others {
		n.holds(t, 10)
	}
	w.isolate(leader.address)
	var removing sync.WaitGroup
	removing.Go(func() { _ = leader.Remove(t.Context(), others[0].id) }) // it fails when the leader's lease ends
	eventually(t, "the removal is in the leader's log", func() bool { return len(leader.Servers()) == 2 })
	if leader.removed(others[0].id) {
		t.Error("it is refused before the removal is committed")
	}
	removing.Wait()
	next := c.leader(t, leader)
	next.propose(t, 11, 10)
	w.heal(leader.address)
	for _, n := range c {
		n.holds(t, 20)
	}
	c.wantNoFatals(t)
}
