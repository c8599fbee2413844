package membership

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

	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/transport"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	bootstrapInterval = 300 * time.Millisecond // between two rounds, ± a third
	// admissionInterval is the same if the peers have a cluster: an operator may be waiting for
	// this replica to become a voter.
	admissionInterval = 100 * time.Millisecond
	waitLogInterval   = 5 * time.Second // between two log lines about what it waits for
	probeTimeout      = time.Second
)

// decision is how a replica with an empty data directory starts Raft.
type decision int

const (
	undecided decision = iota
	// found: bootstrap a cluster, with the peers or with this server alone.
	found
	// join: the cluster admits this replica; the log comes from the leader.
	join
)

// bootstrapConfig is what decide needs.
type bootstrapConfig struct {
	Self datadir.Identity
	// Quarantined are the quarantined data directories of this replica. With one of
	// them it bootstraps no cluster.
	Quarantined []string
	Peers       []raftnode.Server // from the command line, this server included; may be empty
	Logger      *slog.Logger

	// Identify asks a peer. It is called for all peers at once, and its ctx ends after
	// a second.
	Identify func(ctx context.Context, address string) (*dtaskv1.IdentifyResponse, error)
	// AskAdmission asks the cluster to admit this server. A *transport.RefusedError is
	// final; after any other error it is called again.
	AskAdmission func(ctx context.Context) (clusterID string, err error)
}

// PeersDigest returns a digest of peers that does not depend on their order: replicas
// with the same --peers have the same.
func PeersDigest(peers []raftnode.Server) string {
	sorted := slices.SortedFunc(slices.Values(peers),
		func(a, b raftnode.Server) int { return cmp.Compare(a.ID, b.ID) })
	var text strings.Builder
	for _, p := range sorted {
		fmt.Fprintf(&text, "%q=%q\n", p.ID, p.Address)
	}
	sum := sha256.Sum256([]byte(text.String()))
	return hex.EncodeToString(sum[:8])
}

// decide decides how a replica with an empty data directory starts Raft, and waits
// for as long as that takes:
//
//   - A server without other peers founds a cluster.
//   - Otherwise it founds one only if a majority of the peers, itself included, has
//     the same --peers and knows no cluster: they are empty, or have just founded
//     this one and not elected a leader yet. All of them write the same first entry,
//     so that their order does not matter.
//   - As soon as any peer knows a cluster, this replica founds none and asks to be
//     admitted. If its data directory was lost, the cluster knows its server id with
//     another instance and refuses it.
//
// If a majority of the data directories is lost while all peers that know the cluster
// are down, the majority founds a new cluster; the others refuse its cluster id
// afterwards.
//
// It returns a *transport.RefusedError, or ctx's cause when ctx is done.
func decide(ctx context.Context, cfg bootstrapConfig) (d decision, clusterID string, err error) {
	b := &bootstrapper{bootstrapConfig: cfg, digest: PeersDigest(cfg.Peers)}
	self := func(s raftnode.Server) bool { return s.ID == cfg.Self.ServerID || s.ID == cfg.Self.Base() }
	b.named = slices.ContainsFunc(cfg.Peers, self)
	b.others = slices.DeleteFunc(slices.Clone(cfg.Peers), self)
	if len(b.others) == 0 && cfg.Self.ClusterID == "" {
		if len(cfg.Quarantined) > 0 {
			return 0, "", &transport.RefusedError{
				ServerID: cfg.Self.ServerID,
				Reason: "it has no peers to get its data from, and a new cluster would not have the jobs in " +
					strings.Join(cfg.Quarantined, ", ") + "; to start an empty cluster, move that directory elsewhere",
			}
		}
		return found, "", nil
	}
	for {
		d, clusterID, err = b.round(ctx)
		if err != nil || d != undecided {
			return d, clusterID, err
		}
		interval := bootstrapInterval
		if b.exists {
			interval = admissionInterval
		}
		wait := time.NewTimer(interval*2/3 + rand.N(interval*2/3)) //nolint:gosec // jitter
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return 0, "", context.Cause(ctx)
		}
	}
}

type bootstrapper struct {
	bootstrapConfig
	others []raftnode.Server
	named  bool // this server is in its own --peers
	digest string
	logged time.Time
	exists bool // the peers had a cluster in the last round
}

// peerAnswer is the answer of one peer in one round.
type peerAnswer struct {
	peer raftnode.Server
	info *dtaskv1.IdentifyResponse
	err  error
}

// round asks every peer once.
func (b *bootstrapper) round(ctx context.Context) (decision, string, error) {
	empty := 1 // peers that know no cluster, this one included
	var waiting []string
	b.exists = b.Self.ClusterID != ""
	for _, a := range b.ask(ctx) {
		switch {
		case a.err != nil:
			waiting = append(waiting, fmt.Sprintf("%s at %s does not answer: %v",
				a.peer.ID, a.peer.Address, errorText(a.err)))
		case a.info.GetClusterId() != "" && strings.HasPrefix(a.info.GetServerId(), a.peer.ID+"-"):
			b.exists = true // the peer rejoined under a new id
		case a.info.GetServerId() != a.peer.ID:
			waiting = append(waiting, fmt.Sprintf("the server at %s is %s, not %s: check --peers",
				a.peer.Address, a.info.GetServerId(), a.peer.ID))
		case a.info.GetClusterId() != "":
			b.exists = true
		case a.info.GetQuarantined():
			waiting = append(waiting, fmt.Sprintf("%s at %s was part of a cluster: its data directory is quarantined", a.peer.ID, a.peer.Address))
		case a.info.GetPeersDigest() != b.digest:
			waiting = append(waiting, fmt.Sprintf("%s at %s has other --peers (digest %s, here %s): they must match on all replicas",
				a.peer.ID, a.peer.Address, a.info.GetPeersDigest(), b.digest))
		default:
			empty++
		}
	}
	if b.exists {
		return b.join(ctx, waiting)
	}
	if len(b.Quarantined) > 0 {
		b.report(ctx, "waiting for the cluster of this replica",
			append(waiting, "quarantined: "+strings.Join(b.Quarantined, ", ")))
		return undecided, "", nil
	}
	if b.named && empty >= len(b.Peers)/2+1 {
		b.Logger.InfoContext(ctx, "founding a cluster: a majority of the peers knows none",
			"server_id", b.Self.ServerID, "peers", len(b.Peers), "agree", empty, "waiting_for", waiting)
		return found, "", nil
	}
	if !b.named {
		waiting = append(waiting, b.Self.ServerID+" is not in its own --peers, so it only joins an existing cluster")
	}
	b.report(ctx, "waiting for peers to form a cluster", waiting)
	return undecided, "", nil
}

func (b *bootstrapper) ask(ctx context.Context) []peerAnswer {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	answers := make([]peerAnswer, len(b.others))
	var group sync.WaitGroup
	for i, peer := range b.others {
		group.Go(func() {
			info, err := b.Identify(ctx, peer.Address)
			answers[i] = peerAnswer{peer: peer, info: info, err: err}
		})
	}
	group.Wait()
	return answers
}

// join asks for admission to the existing cluster.
func (b *bootstrapper) join(ctx context.Context, waiting []string) (decision, string, error) {
	clusterID, err := b.AskAdmission(ctx)
	refused, isRefused := errors.AsType[*transport.RefusedError](err)
	switch {
	case isRefused:
		return 0, "", refused
	case err != nil:
		b.report(ctx, "waiting for admission by the cluster", append(waiting, err.Error()))
		return undecided, "", nil
	case b.Self.ClusterID != "" && b.Self.ClusterID != clusterID:
		return 0, "", &transport.RefusedError{
			ServerID: b.Self.ServerID,
			Reason:   fmt.Sprintf("its data directory belongs to cluster %s, its peers to cluster %s", b.Self.ClusterID, clusterID),
		}
	default:
		return join, clusterID, nil
	}
}

func (b *bootstrapper) report(ctx context.Context, msg string, waiting []string) {
	if ctx.Err() != nil || (!b.logged.IsZero() && time.Since(b.logged) < waitLogInterval) {
		return
	}
	b.logged = time.Now()
	b.Logger.WarnContext(ctx, msg, "server_id", b.Self.ServerID, "waiting_for", waiting) //nolint:sloglint // one of 3 constants
}
