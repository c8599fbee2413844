package coordinator

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/transport"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// form decides whether this replica restarts, founds a cluster, or joins one.
// It gives the founders if it is to found one.
func (r *replica) form(ctx context.Context) (founders []raftnode.Server, err error) {
	if r.stored {
		return nil, r.checkFresh(ctx)
	}
	out, err := raftnode.Form(ctx, raftnode.FormConfig{
		Self: r.identity.Get(), Peers: r.cfg.servers(), Logger: r.log, Aside: r.aside,
		Probe: r.probe, AskAdmission: r.askAdmission,
	})
	if err != nil {
		err = fmt.Errorf("forming the cluster: %w", err)
		if _, refused := errors.AsType[*transport.RefusedError](err); refused && !r.cfg.AutoRejoin {
			err = fmt.Errorf("%w\n%s", err, r.cfg.advice())
		}
		return nil, err
	}
	switch out.Decision {
	case raftnode.Bootstrap:
		if len(r.cfg.Peers) == 0 {
			return []raftnode.Server{{ID: r.cfg.ID, Address: r.cfg.Advertise, Voter: true}}, nil
		}
		return r.cfg.servers(), nil
	case raftnode.Join:
		if r.identity.Get().ServerID != r.id {
			return nil, errRenamed
		}
		return nil, r.identity.SetClusterID(out.ClusterID)
	case raftnode.Restart:
	}
	return nil, nil
}

// prepare reads the state of a folder while the others are asked whether it may be used. Nobody
// sees anything of that state before. Once end has been called the folder is not read
// any more.
func (r *replica) prepare(ctx context.Context) (prepared *raftnode.Prepared, end func()) {
	if !r.stored {
		return nil, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	prepared = raftnode.Prepare(ctx, r.cfg.DataDir, replicated{r.machine, r.history})
	return prepared, func() {
		cancel()
		prepared.Wait()
	}
}

func (r *replica) probe(ctx context.Context, address string) (raftnode.PeerInfo, error) {
	id, err := r.peers.Identify(ctx, address)
	if err != nil {
		return raftnode.PeerInfo{}, err
	}
	return raftnode.PeerInfo{
		ServerID: id.GetServerId(), Instance: id.GetInstance(), ClusterID: id.GetClusterId(),
		Empty: id.GetEmpty(), SetAside: id.GetQuarantined(), PeersDigest: id.GetPeersDigest(),
	}, nil
}

func detailOf(err error) *dtaskv1.ErrorDetail {
	for _, x := range status.Convert(err).Details() {
		if d, ok := x.(*dtaskv1.ErrorDetail); ok {
			return d
		}
	}
	return nil
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
