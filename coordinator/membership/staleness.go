package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dtask/dtask/coordinator/transport"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// staleTimeout bounds the staleness check: long enough for the others to elect a
	// leader on a stalled machine.
	staleTimeout = 10 * time.Second
	// verifyTimeout is how long a replica waits, after a crash, for the answers of all
	// others.
	verifyTimeout = 3 * time.Second
	// staleRoundTimeout bounds one round, which a vanished replica prolongs to that.
	staleRoundTimeout = 2 * time.Second
	// minRoundTimeout is how long a replica that runs may take to answer, in any case.
	minRoundTimeout = 500 * time.Millisecond
	// confirmedGrace is how long a round waits for the others after a leader has answered:
	// one of them may have led before, and remember more.
	confirmedGrace = 200 * time.Millisecond
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
// error that wraps ErrStale if not, or a *transport.RefusedError. Without an error,
// missing are the replicas without whose answers the directory was accepted, although
// its last stop was not orderly.
func (c *Candidate) CheckStale(ctx context.Context, lastStored uint64, orderly bool) (missing []string, err error) {
	id := c.Dir.Identity()
	if id.ClusterID == "" {
		return nil, nil
	}
	q := c.request()
	q.Stored, q.LastIndex = true, lastStored
	check := stalenessCheck{
		members: c.members(), last: lastStored,
		ask: func(ctx context.Context, address string) (*dtaskv1.AdmitResponse, error) {
			return c.ask(ctx, address, q)
		},
		identify: func(ctx context.Context, address string) *dtaskv1.IdentifyResponse {
			a, err := c.Peers.Identify(ctx, address)
			if err != nil || a.GetClusterId() != id.ClusterID {
				return nil
			}
			return a
		},
	}
	for _, address := range c.others() {
		if !slices.Contains(check.members, address) {
			check.others = append(check.others, address)
		}
	}
	if !orderly {
		check.wait = c.Scale.Scale(verifyTimeout)
	}
	stale, missing, err := check.run(ctx)
	if stale {
		return nil, fmt.Errorf("%w: its log ends at entry %d", ErrStale, lastStored)
	}
	return missing, err
}

// stalenessCheck asks the other replicas whether a data directory is as new as what
// was acknowledged from it.
//
// Any of them may remember more than the leader, because it led before. One that has
// seen more decides. Only a leader can tell that nothing is missing. Without a leader
// the check waits for one if the others are enough to elect it. If they are not, they
// need this replica, as after a power loss of all machines, and the directory is
// accepted.
//
// After a crash the directory may also be an older copy that no running replica
// remembers more of: then an election without the one replica that has the latest
// entries would lose them. So the check first waits, for a bounded time, until all
// others have answered, and those with a longer log run Raft: the first election
// prefers the longest log.
type stalenessCheck struct {
	members []string // addresses of the other members
	others  []string // further addresses, whose answers count, but for which nothing waits
	last    uint64   // last entry of the data directory
	// wait is how long all members have to answer; 0 after an orderly stop.
	wait time.Duration
	// ask asks one replica, and the leader through it. Both functions are called for
	// several addresses at once.
	ask func(ctx context.Context, address string) (*dtaskv1.AdmitResponse, error)
	// identify asks a replica of the cluster to identify itself; nil if it does not.
	identify func(ctx context.Context, address string) *dtaskv1.IdentifyResponse
}

// run returns whether the directory is stale, or a *transport.RefusedError, or the
// replicas for which the check waited in vain.
func (c stalenessCheck) run(ctx context.Context) (stale bool, missing []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, staleTimeout+c.wait)
	defer cancel()
	began := time.Now()
	for minority := 0; len(c.members) > 0; {
		timeout := staleRoundTimeout
		if left := c.wait - time.Since(began); left > 0 {
			timeout = min(timeout, max(left, minRoundTimeout))
		}
		r := c.round(ctx, timeout)
		if r.refused != nil || r.stale || r.confirmed {
			return r.stale, nil, r.refused
		}
		if c.wait == 0 {
			r.missing = nil
		}
		waiting := len(r.missing) > 0
		switch {
		case r.running > (len(c.members)+1)/2: // they can elect a leader without this replica
			minority = 0
		case waiting && time.Since(began) < c.wait:
		case waiting || c.wait > 0:
			return false, r.missing, nil
		default:
			if minority++; minority == minorityRounds {
				return false, nil, nil
			}
		}
		select {
		case <-time.After(staleRoundInterval):
		case <-ctx.Done():
			return false, r.missing, nil // they don't agree on a leader and may need this replica
		}
	}
	return false, nil, nil
}

// staleAnswers are the answers of one round.
type staleAnswers struct {
	stale     bool     // a replica has seen more
	confirmed bool     // a leader has answered, directly or through another replica
	running   int      // members on which Raft runs
	missing   []string // members without an answer, or with a longer log and without Raft
	refused   error
}

// round asks all replicas once.
func (c stalenessCheck) round(ctx context.Context, timeout time.Duration) staleAnswers {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var mu sync.Mutex // guards all
	var all staleAnswers
	var wg sync.WaitGroup
	for i, address := range slices.Concat(c.members, c.others) {
		wg.Go(func() {
			id := c.identify(ctx, address)
			a, err := c.ask(ctx, address)
			_, refused := errors.AsType[*transport.RefusedError](err)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case i >= len(c.members):
			case id.GetTerm() > 0:
				all.running++
			case id == nil || id.GetLastIndex() > c.last && !staysOut(id):
				all.missing = append(all.missing, address)
			}
			switch {
			case refused:
				all.refused = err
			case err == nil:
				if !all.confirmed {
					time.AfterFunc(confirmedGrace, cancel)
				}
				all.stale, all.confirmed = all.stale || a.GetStale(), true
			}
		})
	}
	wg.Wait()
	slices.Sort(all.missing)
	return all
}

// staysOut reports whether a replica will not run Raft.
func staysOut(id *dtaskv1.IdentifyResponse) bool {
	return slices.ContainsFunc(id.GetAlarms(), func(a *dtaskv1.Alarm) bool { return a.GetKind() == AlarmHistoryConflict })
}
