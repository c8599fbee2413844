package membership

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/transport"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// neighborhood is a set of replicas that answer each other.
type neighborhood struct {
	infos map[string]*dtaskv1.IdentifyResponse // by address; absent means unreachable
	// admit answers a request for admission; nil = no leader.
	admit func() (string, error)
}

var errDown = errors.New("connection refused")

func (w *neighborhood) config(id string, peers []raftnode.Server) bootstrapConfig {
	return bootstrapConfig{
		Self:   datadir.Identity{ServerID: id, Instance: "new-" + id},
		Peers:  peers,
		Logger: slog.New(slog.DiscardHandler),
		Identify: func(_ context.Context, address string) (*dtaskv1.IdentifyResponse, error) {
			if info := w.infos[address]; info != nil {
				return proto.CloneOf(info), nil
			}
			return nil, errDown
		},
		AskAdmission: func(context.Context) (string, error) {
			if w.admit == nil {
				return "", errors.New("no leader")
			}
			return w.admit()
		},
	}
}

func threePeers() []raftnode.Server {
	return []raftnode.Server{{ID: "n1", Address: "a1"}, {ID: "n2", Address: "a2"}, {ID: "n3", Address: "a3"}}
}

func empty(id string, peers []raftnode.Server) *dtaskv1.IdentifyResponse {
	return &dtaskv1.IdentifyResponse{ServerId: id, Instance: "i-" + id, Empty: true, PeersDigest: PeersDigest(peers)}
}

func member(id string) *dtaskv1.IdentifyResponse {
	return &dtaskv1.IdentifyResponse{ServerId: id, Instance: "i-" + id, ClusterId: "c1", PeersDigest: PeersDigest(threePeers())}
}

func TestTheDecisionDependsOnThePeers(t *testing.T) {
	t.Parallel()
	peers := threePeers()
	other := append(threePeers(), raftnode.Server{ID: "n4", Address: "a4"})
	founding := &dtaskv1.IdentifyResponse{ServerId: "n2", PeersDigest: PeersDigest(peers)}
	admitted := func() (string, error) { return "c1", nil }
	refused := func() (string, error) { return "", transport.OtherInstanceError("n1") }
	const waits = undecided
	for _, c := range []struct {
		name    string
		peers   []raftnode.Server
		cluster string // known by the data directory
		infos   map[string]*dtaskv1.IdentifyResponse
		admit   func() (string, error)
		want    decision
		refused bool
	}{
		{name: "no peers", want: found},
		{name: "only itself", peers: peers[:1], want: found},
		{name: "the first of three waits", peers: peers, want: waits},
		{name: "the second of three founds a cluster", peers: peers, infos: map[string]*dtaskv1.IdentifyResponse{"a2": empty("n2", peers)}, want: found},
		{name: "all three empty", peers: peers, infos: map[string]*dtaskv1.IdentifyResponse{"a2": empty("n2", peers), "a3": empty("n3", peers)}, want: found},
		{name: "a peer founded between two probes", peers: peers, infos: map[string]*dtaskv1.IdentifyResponse{"a2": founding}, want: found},
		{name: "the third of three joins", peers: peers, infos: map[string]*dtaskv1.IdentifyResponse{"a2": member("n2"), "a3": member("n3")}, admit: admitted, want: join},
		{name: "a lost data directory is refused", peers: peers, infos: map[string]*dtaskv1.IdentifyResponse{"a2": member("n2"), "a3": member("n3")}, admit: refused, refused: true},
		{name: "a lost data directory without a leader waits", peers: peers, infos: map[string]*dtaskv1.IdentifyResponse{"a2": member("n2"), "a3": member("n3")}, want: waits},
		{name: "an empty majority does not found a cluster beside a member", peers: peers, infos: map[string]*dtaskv1.IdentifyResponse{"a2": empty("n2", peers), "a3": member("n3")}, want: waits},
		{name: "disagreeing peers", peers: peers, infos: map[string]*dtaskv1.IdentifyResponse{"a2": empty("n2", other), "a3": empty("n3", other)}, want: waits},
		{name: "one of two disagrees", peers: peers, infos: map[string]*dtaskv1.IdentifyResponse{"a2": empty("n2", other), "a3": empty("n3", peers)}, want: found},
		{name: "another server answers", peers: peers, infos: map[string]*dtaskv1.IdentifyResponse{"a2": empty("n9", peers)}, want: waits},
		{name: "not in its own peers", peers: peers[1:], infos: map[string]*dtaskv1.IdentifyResponse{"a2": empty("n2", peers[1:]), "a3": empty("n3", peers[1:])}, want: waits},
		{name: "not in its own peers, which have a cluster", peers: peers[1:], infos: map[string]*dtaskv1.IdentifyResponse{"a2": member("n2")}, admit: admitted, want: join},
		{name: "a directory that knows a cluster never founds one", peers: peers, cluster: "c1", infos: map[string]*dtaskv1.IdentifyResponse{"a2": empty("n2", peers), "a3": empty("n3", peers)}, want: waits},
		{name: "a directory of another cluster", peers: peers, cluster: "c9", infos: map[string]*dtaskv1.IdentifyResponse{"a2": member("n2")}, admit: admitted, refused: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &neighborhood{infos: c.infos, admit: c.admit}
				cfg := w.config("n1", c.peers)
				cfg.Self.ClusterID = c.cluster
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				decided, clusterID, err := decide(ctx, cfg)
				var refusal *transport.RefusedError
				switch {
				case c.refused != errors.As(err, &refusal):
					t.Errorf("got %v, want refused: %v", err, c.refused)
				case !c.refused && (c.want == waits) != errors.Is(err, context.DeadlineExceeded):
					t.Errorf("got %v", err)
				case decided != c.want:
					t.Errorf("decision %d, want %d", decided, c.want)
				case decided == join && clusterID != "c1":
					t.Errorf("joins cluster %q", clusterID)
				}
			})
		})
	}
}

// Three empty replicas, started in any order within a minute, found the same cluster or
// join it.
func TestAnyStartOrderFormsOneCluster(t *testing.T) {
	t.Parallel()
	peers := threePeers()
	for _, starts := range [][3]time.Duration{
		{0, 0, 0}, {0, time.Second, time.Minute}, {time.Minute, 0, time.Second}, {time.Second, time.Minute, 0}, {0, time.Minute, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			type result struct {
				i       int
				decided decision
				err     error
			}
			var (
				w       = &neighborhood{infos: make(map[string]*dtaskv1.IdentifyResponse)}
				results = make(chan result)
				lock    = make(chan struct{}, 1) // guards w, which the three share
			)
			w.admit = func() (string, error) { return "c1", nil }
			for i, p := range peers {
				cfg := w.config(p.ID, peers)
				identify := cfg.Identify
				cfg.Identify = func(ctx context.Context, address string) (*dtaskv1.IdentifyResponse, error) {
					lock <- struct{}{}
					defer func() { <-lock }()
					return identify(ctx, address)
				}
				go func() {
					time.Sleep(starts[i])
					lock <- struct{}{}
					w.infos[p.Address] = empty(p.ID, peers)
					<-lock
					decided, _, err := decide(t.Context(), cfg)
					lock <- struct{}{}
					w.infos[p.Address].Empty = false
					<-lock
					results <- result{i, decided, err}
					if decided == found { // a leader is elected 2 s later
						time.Sleep(2 * time.Second)
						lock <- struct{}{}
						w.infos[p.Address].ClusterId = "c1"
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
				if r.decided == found {
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

func TestAReplicaWithAQuarantinedDirectoryFoundsNothing(t *testing.T) {
	t.Parallel()
	_, _, err := decide(t.Context(), bootstrapConfig{Self: datadir.Identity{ServerID: "n1", Instance: "i"}, Logger: slog.New(slog.DiscardHandler), Quarantined: []string{"/data/n1.damaged-x"}})
	var refused *transport.RefusedError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "/data/n1.damaged-x") {
		t.Errorf("alone it got %v, want a refusal that names the directory", err)
	}
}
