package coordinator

import (
	"context"
	"time"

	"github.com/dtask/dtask/internal/tlsconf"
)

// renewalInterval is how often a replica looks whether half of its certificate's time has
// passed.
const renewalInterval = time.Hour

// renew renews the certificate of this replica when half of its time has passed, at the
// start and every hour, until ctx is done. Only a replica that has the key of the CA can;
// the watcher then takes the new files into use. A cluster that was off for a year renews
// all of its certificates at the start.
func (r *replica) renew(ctx context.Context) {
	if r.security == nil {
		return
	}
	tick := time.NewTicker(r.cfg.TimeScale.Scale(renewalInterval))
	defer tick.Stop()
	for {
		r.renewOnce(ctx)
		if err := r.identities.FinishOverdue(ctx); err != nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "old CA not dropped; trying again in an hour", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// renewOnce renews the certificate if it is time.
func (r *replica) renewOnce(ctx context.Context) {
	current, now := r.security.watcher.Current(), r.cfg.Wall()
	if !current.ShouldRenew(now) || !tlsconf.HasCAKey(r.cfg.TLSDir) {
		return
	}
	r.security.files.Lock()
	err := current.Renew(r.cfg.TLSDir, now)
	r.security.files.Unlock()
	if err != nil {
		r.log.ErrorContext(ctx, "certificate not renewed; trying again in an hour", "err", err)
		return
	}
	r.security.watcher.Check()
	r.log.InfoContext(ctx, "certificate renewed", "expires", r.security.watcher.Current().Cert.NotAfter)
}
