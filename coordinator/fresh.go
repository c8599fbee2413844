package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dtask/dtask/coordinator/raftnode"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// freshLimit bounds the question whether a folder that holds state is the latest:
	// long enough for the others to elect a leader while the machine stands still.
	freshLimit = 10 * time.Second
	// freshPause lies between two rounds of it.
	freshPause = 100 * time.Millisecond
)

// errOutdated is why a folder that can be read must not be used.
var errOutdated = errors.New("the data folder is older than what this replica has acknowledged: it is a copy from before, or the disk has forgotten what it had synced")

// checkFresh asks, before Raft runs on a folder that holds state, whether it ends where
// it should.
func (r *replica) checkFresh(ctx context.Context) error {
	id := r.identity.Get()
	if id.ClusterID == "" {
		return nil
	}
	q := r.admitRequest()
	q.Stored, q.LastIndex = true, r.lastStored
	outdated, err := freshness{
		others: r.others(),
		ask: func(ctx context.Context, address string) (*dtaskv1.AdmitResponse, error) {
			return r.admit(ctx, address, q)
		},
		runs: func(ctx context.Context, address string) bool {
			a, err := r.peers.Identify(ctx, address)
			return err == nil && a.GetClusterId() == id.ClusterID && a.GetTerm() > 0
		},
	}.outdated(ctx)
	switch {
	case err != nil:
		return err
	case outdated:
		return fmt.Errorf("%w: its log ends at entry %d", errOutdated, r.lastStored)
	}
	return nil
}

// freshness is the question to the other replicas whether a folder is as new as what
// was acknowledged from it.
//
// Each of them may remember more than the leader: it led before. Whoever has seen more
// than there is, is right. That nothing is missing only a leader can say. While there
// is none it is waited for, if the others are enough to elect one; if they are not,
// they need this replica, as after a loss of power everywhere, and its folder is
// believed.
type freshness struct {
	others []string // addresses
	// ask asks one replica, and the leader by way of it.
	ask func(ctx context.Context, address string) (*dtaskv1.AdmitResponse, error)
	// runs reports whether Raft runs at an address.
	runs func(ctx context.Context, address string) bool
}

// outdated gives the answer. It returns a FatalError if the cluster refuses this replica.
func (f freshness) outdated(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, freshLimit)
	defer cancel()
	for {
		outdated, sure, err := f.round(ctx)
		if outdated || sure || err != nil {
			return outdated, err
		}
		if !f.electable(ctx) {
			return false, nil
		}
		select {
		case <-time.After(freshPause):
		case <-ctx.Done():
			return false, nil // they do not agree on a leader: they may need this one
		}
	}
}

// round asks everybody once. It is sure if a leader has answered.
func (f freshness) round(ctx context.Context) (outdated, sure bool, err error) {
	for _, address := range f.others {
		a, err := f.ask(ctx, address)
		if _, refused := errors.AsType[*raftnode.RefusedError](err); refused {
			return false, false, &FatalError{err}
		}
		if err == nil {
			outdated, sure = outdated || a.GetOutdated(), true
		}
	}
	return outdated, sure, nil
}

// electable reports whether as many of the others run as elect a leader on their own.
func (f freshness) electable(ctx context.Context) bool {
	running := 0
	for _, address := range f.others {
		if f.runs(ctx, address) {
			running++
		}
	}
	return running > (len(f.others)+1)/2
}
