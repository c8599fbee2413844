package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/transport"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// admitLimit bounds one request for admission; a rejoin takes some entries.
	admitLimit = 5 * time.Second
	// lonely is for how long a replica knows no leader before it asks whether it is
	// a member still.
	lonely = 3 * time.Second
)

// errRenamed ends a life of the replica that goes on under another server id.
var errRenamed = errors.New("coordinator: the cluster gave this replica a new server id")

// askAdmission asks to be let in under its id, and, if that is refused and the operator
// wants it, under a new one.
func (r *replica) askAdmission(ctx context.Context) (clusterID string, err error) {
	a, err := r.askAny(ctx, r.admitRequest())
	if refused, ok := errors.AsType[*transport.RefusedError](err); ok && r.cfg.AutoRejoin {
		if !r.saidRefused {
			r.saidRefused = true
			r.log.WarnContext(ctx, "refused, asking for a new server id", "because", refused.Reason)
		}
		q := r.admitRequest()
		q.ServerId, q.Rejoin = r.cfg.ID, true
		a, err = r.askAny(ctx, q)
		if err == nil {
			err = r.identity.Rename(a.GetServerId(), a.GetClusterId())
		}
	}
	return a.GetClusterId(), err
}

func (r *replica) admitRequest() *dtaskv1.AdmitRequest {
	id := r.identity.Get()
	return &dtaskv1.AdmitRequest{ServerId: id.ServerID, Instance: id.Instance, ClusterId: id.ClusterID, Address: r.cfg.Advertise}
}

// rememberInstances keeps with the folder which instances the other members are.
func (r *replica) rememberInstances(node *raftnode.Node) error {
	instances := make(map[string]string)
	for _, s := range node.Servers() {
		instance, known := r.believedInstance(s.ID)
		if known && s.ID != r.id {
			instances[s.ID] = instance
		}
	}
	return r.identity.SetInstances(instances)
}

// askAny asks one member after the other, and whom they name as leader.
func (r *replica) askAny(ctx context.Context, q *dtaskv1.AdmitRequest) (*dtaskv1.AdmitResponse, error) {
	var errs []error
	for _, address := range r.others() {
		a, err := r.admit(ctx, address, q)
		if _, refused := errors.AsType[*transport.RefusedError](err); err == nil || refused {
			return a, err
		}
		errs = append(errs, fmt.Errorf("%s: %w", address, err))
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("there is nobody to ask"))
	}
	return nil, errors.Join(errs...)
}

// others are the addresses of the other replicas: of the members, and of those that the
// operator named.
func (r *replica) others() []string {
	seen := map[string]bool{r.cfg.Advertise: true}
	var list []string
	add := func(address string) {
		if !seen[address] {
			seen[address] = true
			list = append(list, address)
		}
	}
	for _, m := range r.membership.Members() {
		add(m.Address)
	}
	for _, p := range r.cfg.Peers {
		if p.ID != r.cfg.ID && p.ID != r.id {
			add(p.Address)
		}
	}
	return list
}

// admit asks at an address, and at the leader's if that one is not it.
func (r *replica) admit(ctx context.Context, address string, q *dtaskv1.AdmitRequest) (*dtaskv1.AdmitResponse, error) {
	for range 3 {
		once, cancel := context.WithTimeout(ctx, admitLimit)
		a, err := r.peers.Admit(once, address, q)
		cancel()
		if err == nil {
			return a, nil
		}
		d := detailOf(err)
		switch {
		case d.GetReason() == dtaskv1.ErrorReason_ERROR_REASON_REFUSED:
			return nil, &transport.RefusedError{ServerID: q.GetServerId(), Reason: status.Convert(err).Message()}
		case d.GetReason() == dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER && d.GetLeaderAddress() != "":
			address = d.GetLeaderAddress()
		default:
			return nil, err
		}
	}
	return nil, errors.New("the leader keeps moving")
}

// register makes sure, for as long as this replica runs, that the cluster knows this
// instance under its server id and no other one, and that it is a member: one that was
// removed ends itself.
func (r *replica) register(ctx context.Context) error {
	const every = 500 * time.Millisecond
	tick := time.NewTicker(r.cfg.TimeScale.Scale(every))
	defer tick.Stop()
	id := r.identity.Get()
	alone := 0 // looks in a row that saw no leader
	for {
		node := r.node.Load()
		known, recorded := r.knownInstance(id.ServerID)
		if recorded && known != id.Instance {
			return &FatalError{transport.OtherInstanceError(id.ServerID)}
		}
		if err := r.rememberInstances(node); err != nil {
			return &FatalError{err}
		}
		leader, _ := node.Leader()
		if alone++; leader != "" {
			alone = 0
		}
		outside := recorded && !node.Member(id.ServerID)
		if leader != id.ServerID && (!recorded || outside || alone > int(lonely/every)) {
			_, err := r.askAny(ctx, r.admitRequest())
			if refused, ok := errors.AsType[*transport.RefusedError](err); ok {
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
