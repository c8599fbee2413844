package coordinator

import (
	"context"
	"errors"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
)

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

// round asks each member that is not recorded yet, where the configuration says
// that it is, and reports whether all are recorded.
func (d registrar) round(ctx context.Context) bool {
	term := d.r.term.Load()
	if term == nil {
		return false
	}
	all := true
	for _, m := range d.r.members() {
		if _, known := d.r.knownInstance(m.ID); known {
			continue
		}
		all = false
		once, cancel := context.WithTimeout(ctx, time.Second)
		id, err := d.r.peers.Identify(once, m.Address)
		if err == nil && id.GetServerId() == m.ID {
			err = term.Admit(once, m.ID, id.GetInstance())
			if _, refused := errors.AsType[*sequencer.RejectedError](err); refused {
				d.r.log.WarnContext(ctx, "another instance was recorded first", "server_id", m.ID)
			}
		}
		cancel()
	}
	return all
}
