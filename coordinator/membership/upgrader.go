package membership

import (
	"context"
	"sync"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/timescale"
)

// upgradeInterval separates two passes of the Upgrader.
const upgradeInterval = time.Second

// Upgrader is the leader's duty that raises the cluster's feature level once all members
// have supported a higher one for Config.UpgradeAfter, unless the operator holds it. Until
// then all of them can return to their older build. The term that founds a cluster raises
// it as soon as all founders answer: there is nothing to return to.
//
// The duty asks nobody while the cluster has the level of this build. A new leader
// measures the time again.
type Upgrader struct {
	Service *Service
	Scale   timescale.Factor
}

// Name implements leader.Duty.
func (*Upgrader) Name() string { return "upgrade" }

// Run implements leader.Duty.
func (u *Upgrader) Run(ctx context.Context, _ uint64) error {
	defer u.Service.ready.observe(0)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait := reconcileInterval // until the term has a sequencer
		if recorder, node := u.Service.cfg.Recorder(), u.Service.cfg.Node(); recorder != nil && node != nil {
			u.pass(ctx, recorder, node)
			wait = upgradeInterval
		}
		timer.Reset(u.Scale.Scale(wait))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (u *Upgrader) pass(ctx context.Context, recorder Recorder, node Node) {
	s := u.Service
	level, held := s.level()
	if s.cfg.Machine.MaxLevel() <= level {
		s.ready.observe(0)
		return
	}
	supported := supportedByAll(s.askBuilds(ctx, node.Servers()))
	if supported <= level {
		s.ready.observe(0)
		return
	}
	s.ready.observe(supported)
	if held || !recorder.Founded() && s.ready.raiseIn(supported, s.cfg.UpgradeAfter) > 0 {
		return
	}
	// An error has no effect: the next pass, or the next leader, repeats it.
	_ = s.changeLevel(ctx, recorder, func(level fsm.Level, held bool) *fsm.SetLevel {
		if held || level >= supported {
			return nil
		}
		return &fsm.SetLevel{Level: supported}
	})
}

// readiness is since when all members support a level above the cluster's.
type readiness struct {
	mu    sync.Mutex // guards the fields below
	level fsm.Level  // 0 = they do not
	since time.Time
}

// observe records the level that all members support now; 0 = none above the cluster's.
func (r *readiness) observe(level fsm.Level) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if level != r.level {
		r.level, r.since = level, time.Now()
	}
}

// raiseIn returns the time until all members have supported a level for long enough; 0 if
// they have.
func (r *readiness) raiseIn(level fsm.Level, after time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if level != r.level {
		return after
	}
	return max(0, after-time.Since(r.since))
}
