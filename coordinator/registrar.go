package coordinator

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
)

// askLimit is how long members have to say who they are.
const askLimit = 500 * time.Millisecond

// registrar is the leader's duty of recording which instance each member is, at
// first contact: from then on another folder under its id is refused.
type registrar struct{ r *replica }

// Name implements leader.Duty.
func (registrar) Name() string { return "registrar" }

// Run implements leader.Duty.
func (d registrar) Run(ctx context.Context, _ uint64) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if d.round(ctx) {
			return waitFor(ctx)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// round records the members that answer now, and reports whether all are
// recorded.
func (d registrar) round(ctx context.Context) bool {
	term := d.r.term.Load()
	if term == nil {
		return false
	}
	for _, m := range d.r.unrecorded(ctx) {
		err := term.Admit(ctx, m.ServerID, m.Instance)
		if _, refused := errors.AsType[*sequencer.RejectedError](err); refused {
			d.r.log.WarnContext(ctx, "another instance was recorded first", "server_id", m.ServerID)
		}
	}
	for _, m := range d.r.members() {
		if _, known := d.r.knownInstance(m.ID); !known {
			return false
		}
	}
	return true
}

// unrecorded asks each member whose instance is not recorded, where the
// configuration says that it is, and gives those that answer.
func (r *replica) unrecorded(ctx context.Context) []fsm.Replica {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex // guards found
		found []fsm.Replica
	)
	for _, m := range r.members() {
		if _, known := r.knownInstance(m.ID); known || m.ID == r.cfg.ID {
			continue
		}
		wg.Go(func() {
			id, err := r.peers.Identify(ctx, m.Address)
			if err != nil || id.GetServerId() != m.ID {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			found = append(found, fsm.Replica{ServerID: m.ID, Instance: id.GetInstance()})
		})
	}
	wg.Wait()
	return found
}
