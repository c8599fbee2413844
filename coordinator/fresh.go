package coordinator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dtask/dtask/coordinator/transport"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// freshLimit bounds the question whether a folder that holds state is the latest:
	// long enough for the others to elect a leader while the machine stands still.
	freshLimit = 10 * time.Second
	// freshRound bounds one round of it: who is gone without a word costs that much.
	freshRound = 2 * time.Second
	// freshPause lies between two rounds.
	freshPause = 100 * time.Millisecond
	// tooFew is in how many rounds in a row too few of the others run before the folder
	// is believed: in one of them this machine may have stood still.
	tooFew = 2
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
	// ask asks one replica, and the leader by way of it. Both functions are called for
	// several addresses at once.
	ask func(ctx context.Context, address string) (*dtaskv1.AdmitResponse, error)
	// runs reports whether Raft runs at an address.
	runs func(ctx context.Context, address string) bool
}

// outdated gives the answer. It returns a FatalError if the cluster refuses this replica.
func (f freshness) outdated(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, freshLimit)
	defer cancel()
	for few := 0; len(f.others) > 0; {
		h := f.round(ctx)
		switch {
		case h.refused != nil:
			return false, &FatalError{h.refused}
		case h.outdated || h.sure:
			return h.outdated, nil
		case h.running > (len(f.others)+1)/2: // they elect a leader on their own
			few = 0
		default:
			few++
		}
		if few == tooFew {
			return false, nil
		}
		select {
		case <-time.After(freshPause):
		case <-ctx.Done():
			return false, nil // they do not agree on a leader: they may need this one
		}
	}
	return false, nil
}

// heard is what the others said in a round.
type heard struct {
	outdated bool // somebody has seen more
	sure     bool // a leader has answered, or by its word another
	running  int  // on how many Raft runs
	refused  error
}

// round asks everybody once.
func (f freshness) round(ctx context.Context) heard {
	ctx, cancel := context.WithTimeout(ctx, freshRound)
	defer cancel()
	var mu sync.Mutex
	var h heard
	var wg sync.WaitGroup
	for _, address := range f.others {
		wg.Go(func() {
			runs := f.runs(ctx, address)
			a, err := f.ask(ctx, address)
			_, refused := errors.AsType[*transport.RefusedError](err)
			mu.Lock()
			defer mu.Unlock()
			if runs {
				h.running++
			}
			switch {
			case refused:
				h.refused = err
			case err == nil:
				h.outdated, h.sure = h.outdated || a.GetStale(), true
			}
		})
	}
	wg.Wait()
	return h
}
