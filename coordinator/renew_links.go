package coordinator

import (
	"context"
	"time"

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// renewInterval separates two attempts to replace connections to the other replicas, which
	// get certificates of the new CA at about the same time. If the operator makes those,
	// followTrust wakes the next attempt.
	renewInterval = 100 * time.Millisecond
	// maxRenewal bounds the attempts in a row, and how long the old CA can't be dropped because
	// of them. It is shorter than the wait of RotateCA.
	maxRenewal = 3 * time.Second
)

// renewLinks replaces the connections to other replicas while the certificates of both CAs
// count, until ctx is done. Those that are left when the old CA is dropped end in
// closeUntrusted.
func (r *replica) renewLinks(ctx context.Context, node *raftnode.Node) {
	if r.security == nil {
		return
	}
	r.security.renews.Store(true)
	for {
		r.renewAll(ctx, node)
		select {
		case <-ctx.Done():
			return
		case <-r.security.adopted:
		}
	}
}

// renewAll replaces the connections until none is left, maxRenewal has passed or the files
// have changed. After that it tries once.
func (r *replica) renewAll(ctx context.Context, node *raftnode.Node) {
	current := r.security.watcher.Current()
	if !current.IsReplacing() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.TimeScale.Scale(maxRenewal))
	defer cancel()
	tick := time.NewTicker(r.cfg.TimeScale.Scale(renewInterval))
	defer tick.Stop()
	for r.security.watcher.Current() == current {
		left := node.RenewLinks(ctx, r.peerCreds)
		if r.security.renewed.Load() == current {
			return
		}
		if left == 0 || ctx.Err() != nil {
			r.security.renewed.Store(current)
			r.log.InfoContext(ctx, "replaced connections with certificates of the old CA", "left", left)
			return
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// wakeRenewal wakes renewLinks.
func (s *security) wakeRenewal() {
	select {
	case s.adopted <- struct{}{}:
	default: // it is awake
	}
}

// ownCertificate describes the certificate of this replica; nil in plaintext. While the CA is
// being replaced, this replica names the CAs once its connections don't need the old one.
func (s *security) ownCertificate(dir string) *dtaskv1.OwnCertificate {
	if s == nil {
		return nil
	}
	current := s.watcher.Current()
	ca := tlsconf.KeyHash(current.CACert())
	own := &dtaskv1.OwnCertificate{CaKeyHash: ca[:], ExpiresAt: current.Cert.NotAfter.UnixMilli(), HasCaKey: tlsconf.HasCAKey(dir)}
	if !current.IsReplacing() || !s.renews.Load() || s.renewed.Load() == current {
		trust := tlsconf.BundleHash(current.Bundle)
		own.Trust = trust[:]
	}
	return own
}
