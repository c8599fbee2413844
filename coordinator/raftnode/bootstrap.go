package raftnode

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dtask/dtask/coordinator/transport"
)

const (
	formEvery    = 300 * time.Millisecond // between two rounds, ± a third
	formLogEvery = 5 * time.Second        // how often it says what it waits for
	probeTimeout = time.Second
)

// A Decision says how a replica's raft is to be started.
type Decision int

// The decisions of Form.
const (
	// Restart: the folder holds state; start raft on it.
	Restart Decision = iota + 1
	// Bootstrap: found a cluster; start raft with Config.Founders = the peers, or
	// this server alone when there are none.
	Bootstrap
	// Join: the cluster admits this replica; record its id with SetClusterID and
	// start raft on the empty folder. The log comes from the leader.
	Join
)

// String returns the decision in lower case.
func (d Decision) String() string {
	switch d {
	case Restart:
		return "restart"
	case Bootstrap:
		return "bootstrap"
	case Join:
		return "join"
	default:
		return fmt.Sprintf("decision %d", int(d))
	}
}

// PeerInfo is what a replica answers when a peer asks how it stands.
type PeerInfo struct {
	ServerID, Instance string
	ClusterID          string // "" while it does not know its cluster
	Empty              bool   // its folder holds no raft state
	SetAside           bool   // its folder was damaged: it was part of a cluster
	PeersDigest        string // of its own --peers; see PeersDigest
}

// FormConfig is what Form needs.
type FormConfig struct {
	Self     Identity
	HasState bool // see HasState
	// Aside are folders of this replica that were set aside as damaged. If there are
	// any, it founds no cluster.
	Aside  []string
	Peers  []Server // as the operator named them, this server included; may be empty
	Logger *slog.Logger

	// Probe asks a peer how it stands. It is called for all peers at once, and
	// its ctx ends after a second.
	Probe func(ctx context.Context, address string) (PeerInfo, error)
	// AskAdmission asks the cluster, by way of its leader, to admit this
	// server with its instance. A *transport.RefusedError is final; after any other
	// error it is asked again.
	AskAdmission func(ctx context.Context) (clusterID string, err error)
}

// Outcome is what Form found out.
type Outcome struct {
	Decision  Decision
	ClusterID string // for Join
}

// PeersDigest returns a digest of peers that does not depend on their order: replicas
// that were given the same --peers have the same.
func PeersDigest(peers []Server) string {
	sorted := slices.SortedFunc(slices.Values(peers), func(a, b Server) int { return cmp.Compare(a.ID, b.ID) })
	var text strings.Builder
	for _, p := range sorted {
		fmt.Fprintf(&text, "%q=%q\n", p.ID, p.Address)
	}
	sum := sha256.Sum256([]byte(text.String()))
	return hex.EncodeToString(sum[:8])
}

// Form decides how raft is to be started, and waits for as long as that takes:
//
//   - A folder with state restarts, whoever else is there.
//   - An empty folder whose server has no peers but itself founds a cluster.
//   - Otherwise a cluster is founded only when a majority of the peers, this one
//     counted, say with the same --peers that they know of no cluster: they are
//     empty, or have founded this one just now and not elected a leader yet. All
//     of them write the same first entry, so it does not matter who is first.
//   - As soon as any peer knows a cluster, none is founded here: this replica asks
//     to be admitted. A wiped folder is refused, because the cluster knows its
//     server id with another instance, and the refusal is returned.
//
// A majority of wiped folders whose peers that know the cluster are all away is, to
// itself, a new cluster; the others refuse it by its cluster id afterwards.
//
// Form returns a *transport.RefusedError, or ctx's cause when ctx is done.
func Form(ctx context.Context, cfg FormConfig) (Outcome, error) {
	if cfg.HasState {
		return Outcome{Decision: Restart}, nil
	}
	f := &former{FormConfig: cfg, digest: PeersDigest(cfg.Peers)}
	self := func(s Server) bool { return s.ID == cfg.Self.ServerID || s.ID == cfg.Self.Base() }
	f.named = slices.ContainsFunc(cfg.Peers, self)
	for _, p := range cfg.Peers {
		if !self(p) {
			f.others = append(f.others, p)
		}
	}
	if len(f.others) == 0 && cfg.Self.ClusterID == "" {
		if len(cfg.Aside) > 0 {
			return Outcome{}, &transport.RefusedError{ServerID: cfg.Self.ServerID, Reason: "there is nobody to get its data from, and to begin anew " +
				"would be to forget what is in " + strings.Join(cfg.Aside, ", ") + "; to begin anew all the same, move that elsewhere"}
		}
		return Outcome{Decision: Bootstrap}, nil
	}
	for {
		outcome, err := f.round(ctx)
		if err != nil || outcome.Decision != 0 {
			return outcome, err
		}
		wait := time.NewTimer(formEvery*2/3 + rand.N(formEvery*2/3)) //nolint:gosec // jitter
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return Outcome{}, context.Cause(ctx)
		}
	}
}

type former struct {
	FormConfig
	others []Server
	named  bool // this server is among its own peers
	digest string
	logged time.Time
}

// answer of one peer in one round.
type probed struct {
	peer Server
	info PeerInfo
	err  error
}

// round asks everybody once. A zero Decision means: not yet.
func (f *former) round(ctx context.Context) (Outcome, error) {
	answers := f.probe(ctx)
	unborn, waiting := 1, []string(nil) // this one is unborn
	var born bool
	for _, a := range answers {
		switch {
		case a.err != nil:
			waiting = append(waiting, fmt.Sprintf("%s at %s does not answer: %v", a.peer.ID, a.peer.Address, a.err))
		case a.info.ClusterID != "" && strings.HasPrefix(a.info.ServerID, a.peer.ID+"-"):
			born = true // it came back under a new id
		case a.info.ServerID != a.peer.ID:
			waiting = append(waiting, fmt.Sprintf("at %s answers %s, not %s: check --peers", a.peer.Address, a.info.ServerID, a.peer.ID))
		case a.info.ClusterID != "":
			born = true
		case a.info.SetAside:
			waiting = append(waiting, fmt.Sprintf("%s at %s was part of a cluster: its damaged folder was set aside", a.peer.ID, a.peer.Address))
		case a.info.PeersDigest != f.digest:
			waiting = append(waiting, fmt.Sprintf("%s at %s was started with other --peers (digest %s, here %s): start all with the same",
				a.peer.ID, a.peer.Address, a.info.PeersDigest, f.digest))
		default:
			unborn++
		}
	}
	if born || f.Self.ClusterID != "" {
		return f.ask(ctx, waiting)
	}
	if len(f.Aside) > 0 {
		f.report(ctx, "waiting for the cluster that this replica was part of", append(waiting, "set aside as damaged: "+strings.Join(f.Aside, ", ")))
		return Outcome{}, nil
	}
	if f.named && unborn >= len(f.Peers)/2+1 {
		f.Logger.InfoContext(ctx, "a majority of the peers knows of no cluster: founding one",
			"server_id", f.Self.ServerID, "peers", len(f.Peers), "agree", unborn, "missing", waiting)
		return Outcome{Decision: Bootstrap}, nil
	}
	if !f.named {
		waiting = append(waiting, f.Self.ServerID+" is not among its own --peers, so it waits for a cluster to join")
	}
	f.report(ctx, "waiting for peers to form a cluster", waiting)
	return Outcome{}, nil
}

func (f *former) probe(ctx context.Context) []probed {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	answers := make([]probed, len(f.others))
	var group sync.WaitGroup
	for i, peer := range f.others {
		group.Go(func() {
			info, err := f.Probe(ctx, peer.Address)
			answers[i] = probed{peer: peer, info: info, err: err}
		})
	}
	group.Wait()
	return answers
}

// ask asks for admission to the cluster that exists.
func (f *former) ask(ctx context.Context, waiting []string) (Outcome, error) {
	clusterID, err := f.AskAdmission(ctx)
	var refused *transport.RefusedError
	switch {
	case errors.As(err, &refused):
		return Outcome{}, refused
	case err != nil:
		f.report(ctx, "waiting for the cluster to admit this replica", append(waiting, err.Error()))
		return Outcome{}, nil
	case f.Self.ClusterID != "" && f.Self.ClusterID != clusterID:
		return Outcome{}, &transport.RefusedError{
			ServerID: f.Self.ServerID,
			Reason:   fmt.Sprintf("its folder belongs to cluster %s, its peers to cluster %s", f.Self.ClusterID, clusterID),
		}
	default:
		return Outcome{Decision: Join, ClusterID: clusterID}, nil
	}
}

func (f *former) report(ctx context.Context, msg string, waiting []string) {
	if ctx.Err() != nil || (!f.logged.IsZero() && time.Since(f.logged) < formLogEvery) {
		return
	}
	f.logged = time.Now()
	f.Logger.WarnContext(ctx, msg, "server_id", f.Self.ServerID, "because", waiting) //nolint:sloglint // msg is one of three constants
}
