package raftnode

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/transport"
)

// town is a set of replicas as Form sees them.
type town struct {
	infos map[string]*PeerInfo // by address; absent means unreachable
	// admit answers a request for admission.
	admit func() (string, error)
}

var errAway = errors.New("connection refused")

func (w *town) config(id string, peers []Server) FormConfig {
	return FormConfig{
		Self:   Identity{ServerID: id, Instance: "new-" + id},
		Peers:  peers,
		Logger: slog.New(slog.DiscardHandler),
		Probe: func(_ context.Context, address string) (PeerInfo, error) {
			if info := w.infos[address]; info != nil {
				return *info, nil
			}
			return PeerInfo{}, errAway
		},
		AskAdmission: func(context.Context) (string, error) {
			if w.admit == nil {
				return "", errors.New("no leader")
			}
			return w.admit()
		},
	}
}

func threePeers() []Server {
	return []Server{{ID: "n1", Address: "a1"}, {ID: "n2", Address: "a2"}, {ID: "n3", Address: "a3"}}
}

func empty(id string, peers []Server) *PeerInfo {
	return &PeerInfo{ServerID: id, Instance: "i-" + id, Empty: true, PeersDigest: PeersDigest(peers)}
}

func member(id string) *PeerInfo {
	return &PeerInfo{ServerID: id, Instance: "i-" + id, ClusterID: "c1", PeersDigest: PeersDigest(threePeers())}
}

func TestFormDecides(t *testing.T) {
	t.Parallel()
	peers := threePeers()
	other := append(threePeers(), Server{ID: "n4", Address: "a4"})
	founding := &PeerInfo{ServerID: "n2", PeersDigest: PeersDigest(peers)}
	admitted := func() (string, error) { return "c1", nil }
	refused := func() (string, error) { return "", transport.OtherInstanceError("n1") }
	const waits = Decision(0)
	for _, c := range []struct {
		name     string
		peers    []Server
		hasState bool
		cluster  string // that the folder's identity knows
		infos    map[string]*PeerInfo
		admit    func() (string, error)
		want     Decision
		refused  bool
	}{
		{name: "a folder with state restarts", peers: peers, hasState: true, want: Restart},
		{name: "no peers", want: Bootstrap},
		{name: "only itself", peers: peers[:1], want: Bootstrap},
		{name: "the first of three waits", peers: peers, want: waits},
		{name: "the second of three founds", peers: peers, infos: map[string]*PeerInfo{"a2": empty("n2", peers)}, want: Bootstrap},
		{name: "all three empty", peers: peers, infos: map[string]*PeerInfo{"a2": empty("n2", peers), "a3": empty("n3", peers)}, want: Bootstrap},
		{name: "a peer founded between two probes", peers: peers, infos: map[string]*PeerInfo{"a2": founding}, want: Bootstrap},
		{name: "the third of three joins", peers: peers, infos: map[string]*PeerInfo{"a2": member("n2"), "a3": member("n3")}, admit: admitted, want: Join},
		{name: "one wiped is refused", peers: peers, infos: map[string]*PeerInfo{"a2": member("n2"), "a3": member("n3")}, admit: refused, refused: true},
		{name: "one wiped without a leader waits", peers: peers, infos: map[string]*PeerInfo{"a2": member("n2"), "a3": member("n3")}, want: waits},
		{name: "a wiped majority does not found beside a member", peers: peers, infos: map[string]*PeerInfo{"a2": empty("n2", peers), "a3": member("n3")}, want: waits},
		{name: "disagreeing peers", peers: peers, infos: map[string]*PeerInfo{"a2": empty("n2", other), "a3": empty("n3", other)}, want: waits},
		{name: "one of two disagrees", peers: peers, infos: map[string]*PeerInfo{"a2": empty("n2", other), "a3": empty("n3", peers)}, want: Bootstrap},
		{name: "another server answers", peers: peers, infos: map[string]*PeerInfo{"a2": empty("n9", peers)}, want: waits},
		{name: "not among its peers", peers: peers[1:], infos: map[string]*PeerInfo{"a2": empty("n2", peers[1:]), "a3": empty("n3", peers[1:])}, want: waits},
		{name: "not among its peers, who have a cluster", peers: peers[1:], infos: map[string]*PeerInfo{"a2": member("n2")}, admit: admitted, want: Join},
		{name: "a folder that knows a cluster never founds", peers: peers, cluster: "c1", infos: map[string]*PeerInfo{"a2": empty("n2", peers), "a3": empty("n3", peers)}, want: waits},
		{name: "a folder of another cluster", peers: peers, cluster: "c9", infos: map[string]*PeerInfo{"a2": member("n2")}, admit: admitted, refused: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &town{infos: c.infos, admit: c.admit}
				cfg := w.config("n1", c.peers)
				cfg.HasState, cfg.Self.ClusterID = c.hasState, c.cluster
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				outcome, err := Form(ctx, cfg)
				var refusal *transport.RefusedError
				switch {
				case c.refused != errors.As(err, &refusal):
					t.Errorf("got %v, want refused: %v", err, c.refused)
				case !c.refused && (c.want == waits) != errors.Is(err, context.DeadlineExceeded):
					t.Errorf("got %v", err)
				case outcome.Decision != c.want:
					t.Errorf("decided to %v, want %v", outcome.Decision, c.want)
				case outcome.Decision == Join && outcome.ClusterID != "c1":
					t.Errorf("joins cluster %q", outcome.ClusterID)
				}
			})
		})
	}
}

// Three empty replicas, started in any order within a minute, all found the same
// cluster or join it.
func TestAnyStartOrderFormsOneCluster(t *testing.T) {
	t.Parallel()
	peers := threePeers()
	for _, starts := range [][3]time.Duration{
		{0, 0, 0}, {0, time.Second, time.Minute}, {time.Minute, 0, time.Second}, {time.Second, time.Minute, 0}, {0, time.Minute, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			type result struct {
				i       int
				outcome Outcome
				err     error
			}
			var (
				w       = &town{infos: make(map[string]*PeerInfo)}
				results = make(chan result)
				lock    = make(chan struct{}, 1) // the town is shared by the three
			)
			w.admit = func() (string, error) { return "c1", nil }
			for i, p := range peers {
				cfg := w.config(p.ID, peers)
				probe := cfg.Probe
				cfg.Probe = func(ctx context.Context, address string) (PeerInfo, error) {
					lock <- struct{}{}
					defer func() { <-lock }()
					return probe(ctx, address)
				}
				go func() {
					time.Sleep(starts[i])
					lock <- struct{}{}
					w.infos[p.Address] = empty(p.ID, peers)
					<-lock
					outcome, err := Form(t.Context(), cfg)
					lock <- struct{}{}
					w.infos[p.Address].Empty = false
					<-lock
					results <- result{i, outcome, err}
					if outcome.Decision == Bootstrap { // elected a little later
						time.Sleep(2 * time.Second)
						lock <- struct{}{}
						w.infos[p.Address].ClusterID = "c1"
						<-lock
					}
				}()
			}
			founders := 0
			for range peers {
				r := <-results
				if r.err != nil {
					t.Errorf("starts %v: %s: %v", starts, peers[r.i].ID, r.err)
				}
				if r.outcome.Decision == Bootstrap {
					founders++
				}
			}
			if founders < 2 {
				t.Errorf("starts %v: %d founders cannot elect a leader of three", starts, founders)
			}
			time.Sleep(time.Minute)
		})
	}
}

func TestPeersDigestDoesNotDependOnTheOrder(t *testing.T) {
	t.Parallel()
	a, b := threePeers(), threePeers()
	b[0], b[2] = b[2], b[0]
	if PeersDigest(a) != PeersDigest(b) {
		t.Error("the digest depends on the order")
	}
	b[1].Address = "elsewhere"
	if PeersDigest(a) == PeersDigest(b) {
		t.Error("the digest does not depend on an address")
	}
}
