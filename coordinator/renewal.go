package coordinator

import (
	"context"
	"time"

	"github.com/dtask/dtask/internal/tlsconf"
)

const (
	// renewalInterval is how often a replica checks whether half of its certificate's time
	// has passed.
	renewalInterval = time.Hour
	// datesInterval is how often it checks whether its certificate is valid by the clock of
	// the cluster.
	datesInterval = time.Minute
)

// renew renews the certificate of this replica when half of its time has passed, at the
// start and every hour, until ctx is done. The clock of the cluster decides: clients refuse a
// certificate that was renewed by a wrong clock. At the start only that of this replica is
// known, and a cluster that was off for a year renews all of its certificates then. So what is
// not valid by the clock of the cluster is renewed again as soon as that is known, and within
// a minute after the clocks were corrected. Only a replica that has the key of the CA can; the
// watcher then takes the new files into use.
func (r *replica) renew(ctx context.Context) {
	if r.security == nil {
		return
	}
	hourly := time.NewTicker(r.cfg.TimeScale.Scale(renewalInterval))
	defer hourly.Stop()
	dates := time.NewTicker(r.cfg.TimeScale.Scale(datesInterval))
	defer dates.Stop()
	var known <-chan struct{} = r.clusterClock.compared
	for more := true; more; more = r.awaitRenewal(ctx, hourly.C, dates.C, &known) {
		r.renewOnce(ctx)
		if err := r.identities.FinishOverdue(ctx); err != nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "old CA not dropped; trying again", "err", err)
		}
	}
}

// awaitRenewal waits until the certificate may have to be renewed. It returns false when
// ctx is done. known is closed when the time of the cluster is known, and nil once that was
// noticed.
func (r *replica) awaitRenewal(ctx context.Context, hourly, dates <-chan time.Time, known *<-chan struct{}) bool {
	for {
		select {
		case <-hourly:
			return true
		case <-dates:
		case <-*known:
			*known = nil
		case <-ctx.Done():
			return false
		}
		if r.security.watcher.Current().OwnDates(r.clusterClock.now()) != nil {
			return true
		}
	}
}

// renewOnce renews the certificate if it is time.
func (r *replica) renewOnce(ctx context.Context) {
	current, now := r.security.watcher.Current(), r.clusterClock.now()
	if !current.ShouldRenew(now) || !tlsconf.HasCAKey(r.cfg.TLSDir) {
		return
	}
	r.security.files.Lock()
	err := current.Renew(r.cfg.TLSDir, now)
	r.security.files.Unlock()
	if err != nil {
		r.log.ErrorContext(ctx, "certificate not renewed; trying again", "err", err)
		return
	}
	r.security.watcher.Check()
	r.log.InfoContext(ctx, "certificate renewed", "expires", r.security.watcher.Current().Cert.NotAfter)
}
