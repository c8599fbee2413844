package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/coordinator/api"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// form decides whether this replica restarts, founds a cluster, or joins one.
// It gives the founders if it is to found one.
func (r *replica) form(ctx context.Context) (founders []raftnode.Server, err error) {
	out, err := raftnode.Form(ctx, raftnode.FormConfig{
		Self: r.identity.Get(), HasState: r.stored, Peers: r.cfg.servers(), Logger: r.log,
		Probe: r.probe, AskAdmission: r.askAdmission,
	})
	if err != nil {
		return nil, fmt.Errorf("forming the cluster: %w", err)
	}
	switch out.Decision {
	case raftnode.Bootstrap:
		if len(r.cfg.Peers) == 0 {
			return []raftnode.Server{{ID: r.cfg.ID, Address: r.cfg.Advertise, Voter: true}}, nil
		}
		return r.cfg.servers(), nil
	case raftnode.Join:
		return nil, r.identity.SetClusterID(out.ClusterID)
	case raftnode.Restart:
	}
	return nil, nil
}

func (r *replica) probe(ctx context.Context, address string) (raftnode.PeerInfo, error) {
	id, err := r.peers.Identify(ctx, address)
	if err != nil {
		return raftnode.PeerInfo{}, err
	}
	return raftnode.PeerInfo{
		ServerID: id.GetServerId(), Instance: id.GetInstance(), ClusterID: id.GetClusterId(),
		Empty: id.GetEmpty(), PeersDigest: id.GetPeersDigest(),
	}, nil
}

// askAdmission asks one peer after the other, and whom they name as leader.
func (r *replica) askAdmission(ctx context.Context) (clusterID string, err error) {
	id := r.identity.Get()
	q := &dtaskv1.AdmitRequest{ServerId: id.ServerID, Instance: id.Instance, ClusterId: id.ClusterID}
	var errs []error
	for _, p := range r.cfg.Peers {
		if p.ID == r.cfg.ID {
			continue
		}
		clusterID, err := r.admit(ctx, p.Address, q)
		var refused *raftnode.RefusedError
		if err == nil || errors.As(err, &refused) {
			return clusterID, err
		}
		errs = append(errs, fmt.Errorf("%s: %w", p.ID, err))
	}
	return "", errors.Join(errs...)
}

// admit asks at an address, and at the leader's if that one is not it.
func (r *replica) admit(ctx context.Context, address string, q *dtaskv1.AdmitRequest) (string, error) {
	for range 3 {
		once, cancel := context.WithTimeout(ctx, 2*time.Second)
		a, err := r.peers.Admit(once, address, q)
		cancel()
		if err == nil {
			return a.GetClusterId(), nil
		}
		d := detailOf(err)
		switch {
		case d.GetReason() == dtaskv1.ErrorReason_ERROR_REASON_REFUSED:
			return "", &raftnode.RefusedError{ServerID: q.GetServerId(), Reason: status.Convert(err).Message()}
		case d.GetReason() == dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER && d.GetLeaderAddress() != "":
			address = d.GetLeaderAddress()
		default:
			return "", err
		}
	}
	return "", errors.New("the leader keeps moving")
}

func detailOf(err error) *dtaskv1.ErrorDetail {
	for _, x := range status.Convert(err).Details() {
		if d, ok := x.(*dtaskv1.ErrorDetail); ok {
			return d
		}
	}
	return nil
}

// register makes sure that the cluster knows this instance under its server id,
// and that it does not know another one.
func (r *replica) register(ctx context.Context) error {
	id := r.identity.Get()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		known, ok := r.knownInstance(id.ServerID)
		switch {
		case ok && known == id.Instance:
			return waitFor(ctx)
		case ok:
			return &FatalError{raftnode.OtherInstanceError(id.ServerID)}
		}
		if leader, address := r.node.Load().Leader(); leader != "" && leader != id.ServerID {
			_, err := r.admit(ctx, address, &dtaskv1.AdmitRequest{ServerId: id.ServerID, Instance: id.Instance, ClusterId: id.ClusterID})
			if refused, ok := errors.AsType[*raftnode.RefusedError](err); ok {
				return &FatalError{refused}
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// learnCluster writes the cluster's name to the data folder once it is agreed.
func (r *replica) learnCluster(ctx context.Context) error {
	for {
		var name string
		var index uint64
		r.machine.Read(func(s *fsm.State, i uint64) { name, index = s.ClusterID(), i })
		if name != "" {
			if err := r.identity.SetClusterID(name); err != nil {
				return &FatalError{err}
			}
			return waitFor(ctx)
		}
		select {
		case <-r.machine.Changed(index):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// waitFor waits for the end: a duty that has nothing left to do.
func waitFor(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// compare looks whether the replicas agree, and ends this one if it is the odd
// one out.
func (r *replica) compare(ctx context.Context) error {
	err := r.comparer().Run(ctx)
	if err != nil && ctx.Err() == nil {
		return &FatalError{err}
	}
	return err
}

func (r *replica) members() []api.Member {
	node := r.node.Load()
	if node == nil {
		return nil
	}
	var list []api.Member
	for _, s := range node.Servers() {
		list = append(list, api.Member{ID: s.ID, Address: s.Address})
	}
	return list
}
