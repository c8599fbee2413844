package membership

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
	// staleTimeout bounds the staleness check: long enough for the others to elect a
	// leader on a stalled machine.
	staleTimeout = 10 * time.Second
	// staleRoundTimeout bounds one round, which a vanished replica prolongs to that.
	staleRoundTimeout = 2 * time.Second
	// staleRoundInterval separates two rounds.
	staleRoundInterval = 100 * time.Millisecond
	// minorityRounds is the number of consecutive rounds with too few running replicas
	// after which the directory is accepted: during one round this machine may have
	// stalled.
	minorityRounds = 2
)

// ErrStale is returned for a readable data directory that must not be used.
var ErrStale = errors.New("stale data directory: older than acknowledged state; " +
	"it is an old copy, or the disk lost synced writes")

// CheckStale asks the other replicas, before Raft runs on a data directory with state,
// whether the directory has everything that was acknowledged from it. It returns an
// error that wraps ErrStale if not, or a *transport.RefusedError.
func (c *Candidate) CheckStale(ctx context.Context, lastStored uint64) error {
	id := c.Dir.Identity()
	if id.ClusterID == "" {
		return nil
	}
	q := c.request()
	q.Stored, q.LastIndex = true, lastStored
	stale, err := stalenessCheck{
		others: c.others(),
		ask: func(ctx context.Context, address string) (*dtaskv1.AdmitResponse, error) {
			return c.ask(ctx, address, q)
		},
		isRunning: func(ctx context.Context, address string) bool {
			a, err := c.Peers.Identify(ctx, address)
			return err == nil && a.GetClusterId() == id.ClusterID && a.GetTerm() > 0
		},
	}.run(ctx)
	if stale {
		return fmt.Errorf("%w: its log ends at entry %d", ErrStale, lastStored)
	}
	return err
}

// stalenessCheck asks the other replicas whether a data directory is as new as what
// was acknowledged from it.
//
// Any of them may remember more than the leader, because it led before. One that has
// seen more decides. Only a leader can tell that nothing is missing. Without a leader
// the check waits for one if the others are enough to elect it. If they are not, they
// need this replica, as after a power loss of all machines, and the directory is
// accepted.
type stalenessCheck struct {
	others []string // addresses
	// ask asks one replica, and the leader through it. Both functions are called for
	// several addresses at once.
	ask func(ctx context.Context, address string) (*dtaskv1.AdmitResponse, error)
	// isRunning reports whether Raft runs at an address.
	isRunning func(ctx context.Context, address string) bool
}

// run returns whether the directory is stale, or a *transport.RefusedError.
func (c stalenessCheck) run(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, staleTimeout)
	defer cancel()
	for minority := 0; len(c.others) > 0; {
		r := c.round(ctx)
		if r.refused != nil || r.stale || r.confirmed {
			return r.stale, r.refused
		}
		if r.running > (len(c.others)+1)/2 { // they can elect a leader without this replica
			minority = 0
		} else if minority++; minority == minorityRounds {
			return false, nil
		}
		select {
		case <-time.After(staleRoundInterval):
		case <-ctx.Done():
			return false, nil // they don't agree on a leader and may need this replica
		}
	}
	return false, nil
}

// staleAnswers are the answers of one round.
type staleAnswers struct {
	stale     bool // a replica has seen more
	confirmed bool // a leader has answered, directly or through another replica
	running   int  // replicas on which Raft runs
	refused   error
}

// round asks all replicas once.
func (c stalenessCheck) round(ctx context.Context) staleAnswers {
	ctx, cancel := context.WithTimeout(ctx, staleRoundTimeout)
	defer cancel()
	var mu sync.Mutex // guards all
	var all staleAnswers
	var wg sync.WaitGroup
	for _, address := range c.others {
		wg.Go(func() {
			running := c.isRunning(ctx, address)
			a, err := c.ask(ctx, address)
			_, refused := errors.AsType[*transport.RefusedError](err)
			mu.Lock()
			defer mu.Unlock()
			if running {
				all.running++
			}
			switch {
			case refused:
				all.refused = err
			case err == nil:
				all.stale, all.confirmed = all.stale || a.GetStale(), true
			}
		})
	}
	wg.Wait()
	return all
}
