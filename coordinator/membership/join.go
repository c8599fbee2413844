package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/transport"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/timescale"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// admitTimeout bounds one request for admission; a rejoin commits several entries.
	admitTimeout = 5 * time.Second
	// maxAdmitRedirects bounds how often one request follows a leader hint.
	maxAdmitRedirects = 3
	// watchInterval is how often a running replica checks that it is a member.
	watchInterval = 500 * time.Millisecond
	// maxLeaderless is for how many checks a replica may know no leader before it asks
	// whether it is still a member: 3 s.
	maxLeaderless = 6
)

// ErrRenamed is returned by Form if the cluster gave this replica a new server id. The
// data directory has it: the replica must be started again.
var ErrRenamed = errors.New("membership: the cluster gave this replica a new server id")

// Candidate is this replica as it asks the cluster to let it in. It is used before
// Raft runs and while it runs.
type Candidate struct {
	Dir        *datadir.Dir
	Version    string            // of this build
	Advertise  string            // HOST:PORT that the others dial
	Configured []raftnode.Server // --peers; empty = this server alone
	AutoRejoin bool              // ask for a new server id if the old one is refused
	Replace    string            // server id of the lost member whose place this replica takes; empty if none
	// Members returns the cluster's configuration; empty until Raft runs.
	Members func() []raftnode.Server
	Machine *fsm.Machine
	Peers   *Peers
	Scale   timescale.Factor
	Logger  *slog.Logger
}

// Form decides how a replica without Raft state starts, and waits for as long as that
// takes. It returns the founders if this replica founds a cluster, and nil if it
// joins one. The error is a *transport.RefusedError, ErrRenamed, or ctx's cause.
func (c *Candidate) Form(ctx context.Context, quarantined []string) (founders []raftnode.Server, err error) {
	self := c.Dir.Identity()
	warned := false
	decided, clusterID, err := decide(ctx, bootstrapConfig{
		Self: self, Peers: c.Configured, Logger: c.Logger, Quarantined: quarantined, Identify: c.Peers.Identify,
		AskAdmission: func(ctx context.Context) (string, error) {
			q := c.request()
			q.Replaces = c.Replace
			a, err := c.askAny(ctx, q)
			refused, ok := errors.AsType[*transport.RefusedError](err)
			if !ok || !c.AutoRejoin {
				return a.GetClusterId(), err
			}
			if !warned {
				warned = true
				c.Logger.WarnContext(ctx, "admission refused; asking for a new server id",
					"reason", refused.Reason)
			}
			return c.rejoin(ctx)
		},
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("forming the cluster: %w", err)
	case decided == join && c.Dir.Identity().ServerID != self.ServerID:
		return nil, ErrRenamed
	case decided == join:
		return nil, c.Dir.SetClusterID(clusterID)
	case len(c.Configured) == 0:
		return []raftnode.Server{{ID: self.ServerID, Address: c.Advertise, Voter: true}}, nil
	}
	return c.Configured, nil
}

// rejoin asks for a new server id and stores it.
func (c *Candidate) rejoin(ctx context.Context) (clusterID string, err error) {
	q := c.request()
	q.ServerId, q.Rejoin = c.Dir.Identity().Base(), true
	a, err := c.askAny(ctx, q)
	if err == nil {
		err = c.Dir.Rename(a.GetServerId(), a.GetClusterId())
	}
	return a.GetClusterId(), err
}

func (c *Candidate) request() *dtaskv1.AdmitRequest {
	id := c.Dir.Identity()
	return &dtaskv1.AdmitRequest{
		ServerId: id.ServerID, Instance: id.Instance,
		ClusterId: id.ClusterID, Address: c.Advertise,
		MinLevel: uint32(fsm.MinLevel), MaxLevel: uint32(c.Machine.MaxLevel()), Version: c.Version,
	}
}

// askAny asks one replica after the other.
func (c *Candidate) askAny(ctx context.Context, q *dtaskv1.AdmitRequest) (*dtaskv1.AdmitResponse, error) {
	var errs []error
	for _, address := range c.others() {
		a, err := c.ask(ctx, address, q)
		if _, refused := errors.AsType[*transport.RefusedError](err); err == nil || refused {
			return a, err
		}
		errs = append(errs, fmt.Errorf("%s: %s", address, errorText(err)))
	}
	if len(errs) == 0 {
		return nil, errors.New("no other replica is known")
	}
	return nil, errors.Join(errs...)
}

// ask asks the replica at an address, and the leader if that replica names it.
func (c *Candidate) ask(ctx context.Context, address string, q *dtaskv1.AdmitRequest) (*dtaskv1.AdmitResponse, error) {
	for range maxAdmitRedirects {
		once, cancel := context.WithTimeout(ctx, admitTimeout)
		a, err := c.Peers.Admit(once, address, q)
		cancel()
		if err == nil {
			return a, nil
		}
		d := detailOf(err)
		switch {
		case d.GetReason() == dtaskv1.ErrorReason_ERROR_REASON_REFUSED:
			return nil, &transport.RefusedError{
				ServerID: q.GetServerId(),
				Reason:   status.Convert(err).Message(),
			}
		case d.GetReason() == dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER && d.GetLeaderAddress() != "":
			address = d.GetLeaderAddress()
		default:
			return nil, err
		}
	}
	return nil, errors.New("leadership changes too often")
}

// others are the addresses of the other replicas: members and --peers.
func (c *Candidate) others() (list []string) {
	self := c.Dir.Identity()
	for _, s := range slices.Concat(c.Members(), c.Configured) {
		if s.Address != c.Advertise && s.ID != self.ServerID && s.ID != self.Base() && !slices.Contains(list, s.Address) {
			list = append(list, s.Address)
		}
	}
	return list
}

// members are the addresses of the other members before Raft runs: those that the data
// directory knows, where --peers may have a newer address, or else those of --peers.
func (c *Candidate) members() (list []string) {
	known := c.Dir.Identity().Members
	if len(known) == 0 {
		return c.others()
	}
	for _, id := range slices.Sorted(maps.Keys(known)) {
		address := known[id]
		for _, s := range c.Configured {
			if s.ID == id {
				address = s.Address
			}
		}
		if !slices.Contains(list, address) {
			list = append(list, address)
		}
	}
	return list
}

func detailOf(err error) *dtaskv1.ErrorDetail {
	for _, x := range status.Convert(err).Details() {
		if d, ok := x.(*dtaskv1.ErrorDetail); ok {
			return d
		}
	}
	return nil
}

// KnownInstance returns the instance of a server id, also before the log is applied.
func (c *Candidate) KnownInstance(serverID string) (instance string, known bool) {
	c.Machine.Read(func(s *fsm.State, _ uint64) { instance, known = s.Instance(serverID) })
	if !known {
		instance, known = c.Dir.Identity().Instances[serverID]
	}
	return instance, known
}

// LearnCluster stores the cluster's id in the data directory once it is committed, and
// returns then, or when ctx is done.
func (c *Candidate) LearnCluster(ctx context.Context) error {
	for {
		var id string
		var index uint64
		c.Machine.Read(func(s *fsm.State, i uint64) { id, index = s.ClusterID(), i })
		if id != "" {
			return c.Dir.SetClusterID(id)
		}
		select {
		case <-c.Machine.Changed(index):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Watch makes sure, until ctx is done, that the cluster has recorded this instance
// under its server id and that this replica is a member. It returns a
// *transport.RefusedError if not: the process must exit. It also keeps the instances
// and addresses of the other replicas, and the cluster's feature level, in the data
// directory.
func (c *Candidate) Watch(ctx context.Context, node Node) error {
	tick := time.NewTicker(c.Scale.Scale(watchInterval))
	defer tick.Stop()
	id := c.Dir.Identity()
	leaderless := 0 // consecutive checks without a known leader
	for {
		known, recorded := "", false
		c.Machine.Read(func(s *fsm.State, _ uint64) { known, recorded = s.Instance(id.ServerID) })
		if recorded && known != id.Instance {
			return transport.OtherInstanceError(id.ServerID)
		}
		if err := errors.Join(c.storeOthers(node), c.storeLevel()); err != nil {
			return err
		}
		leader, _ := node.Leader()
		if leaderless++; leader != "" {
			leaderless = 0
		}
		removed := recorded && indexOf(node.Servers(), id.ServerID) < 0
		if leader != id.ServerID && (!recorded || removed || leaderless > maxLeaderless) {
			_, err := c.askAny(ctx, c.request())
			if refused, ok := errors.AsType[*transport.RefusedError](err); ok {
				return refused
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// storeLevel keeps the cluster's level for the next start, which may be one of an older
// build.
func (c *Candidate) storeLevel() error {
	level := fsm.Level(0)
	c.Machine.Read(func(s *fsm.State, _ uint64) { level = s.Level() })
	if level == 1 { // every build supports it
		return nil
	}
	return c.Dir.SetLevel(uint32(level), c.Version)
}

// storeOthers keeps the instances and addresses of the other replicas for the next start.
func (c *Candidate) storeOthers(node Node) error {
	instances, members := make(map[string]string), make(map[string]string)
	self := c.Dir.Identity().ServerID
	for _, s := range node.Servers() {
		if s.ID == self {
			continue
		}
		members[s.ID] = s.Address
		if instance, known := c.KnownInstance(s.ID); known {
			instances[s.ID] = instance
		}
	}
	return c.Dir.SetOthers(instances, members)
}
