package worker

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// maxKeyAge is how old the worker's key becomes before the worker replaces it.
	maxKeyAge = 365 * 24 * time.Hour
	// rotateKeyTimeout is how long the worker tries to replace its key before it continues
	// with the old one until its next session.
	rotateKeyTimeout = 5 * time.Second
	// maxReconnectDelay is how long the worker keeps a dropped CA, and stays connected to a
	// coordinator with a certificate of it.
	maxReconnectDelay = 500 * time.Millisecond
)

// secureConnections makes all connections use the CAs and the key that the worker has when
// it connects.
func (w *Worker) secureConnections() {
	w.cfg.TLS = w.tlsWith(w.key.Load)
}

// tlsWith returns a configuration of connections with a key.
func (w *Worker) tlsWith(key func() *tls.Certificate) *tls.Config {
	return tlsconf.FollowTrust(func() tlsconf.Trust { return *w.trust.Load() }, key, nil)
}

// trustHash identifies the CAs that the worker has stored; nil if it stores none.
func (w *Worker) trustHash() []byte {
	trust := w.trust.Load()
	if trust == nil {
		return nil
	}
	hash := tlsconf.BundleHash(trust.Roots)
	return hash[:]
}

// storeTrust stores the CAs and addresses of the cluster, and trusts those CAs from then
// on, after a random delay. It does not wait for it. Only the goroutine of the sessions calls it.
func (w *Worker) storeTrust(t *dtaskv1.Trust) {
	if w.member == nil {
		return // the operator has given the CAs
	}
	roots, err := tlsconf.ParseBundle(t.GetRoots())
	if err != nil || len(roots) == 0 {
		w.log.Error("ignored invalid CAs of the leader", "err", err)
		return
	}
	changed := *w.member
	changed.CA = tlsconf.EncodeRoots(roots)
	if len(t.GetAddresses()) > 0 {
		changed.Addresses = t.GetAddresses()
	}
	w.member = &changed
	w.latest.Store(&changed)
	within, leave := maxReconnectDelay, w.secured.CloseUntrusted
	if t.GetReconnectWithinMs() > 0 && len(w.secured.NotIssuedBy(roots[0])) > 0 {
		within, leave = time.Duration(t.GetReconnectWithinMs())*time.Millisecond, w.closeOld
	}
	w.removals.Go(func() { w.keepLatest(within, leave) })
}

// keepLatest stores the latest membership at some time, and then ends the connections that don't
// fit it. The workers of a cluster learn of a change at the same time, and must not all connect
// again at the same time. The leader does not drop a CA before the worker reports that it has
// stored the next one.
func (w *Worker) keepLatest(within time.Duration, leave func() (closed int)) {
	select {
	case <-w.ended:
		return // a worker that starts again learns the CAs again
	case <-time.After(rand.N(within)): //nolint:gosec // spread, not secrecy
	}
	if !w.storeLatest() {
		return
	}
	w.leaves.Store(true)
	if leave() == 0 {
		w.leaves.Store(false)
	} else {
		w.log.Info("connecting again: the certificate of the coordinator is of an old CA")
	}
}

// endBackground ends what keepLatest waits for, and waits for the goroutines that remove
// directories.
func (w *Worker) endBackground() {
	close(w.ended)
	w.removals.Wait()
}

// closeOld closes the connections with certificates of another CA than the first one, which will
// be dropped.
func (w *Worker) closeOld() (closed int) {
	for _, c := range w.secured.NotIssuedBy(w.trust.Load().Roots[0]) {
		c.Close()
		closed++
	}
	return closed
}

// storeLatest stores the latest membership, and reports whether it could.
func (w *Worker) storeLatest() bool {
	w.storing.Lock()
	defer w.storing.Unlock()
	member := w.latest.Load()
	trust, err := member.trust()
	if err == nil {
		err = w.dirs.keepMembership(member)
	}
	if err != nil {
		w.log.Error("CAs of the cluster not stored", "err", err)
		return false
	}
	w.trust.Store(&trust)
	w.log.Info("stored the CAs of the cluster", "cas", len(trust.Roots))
	return true
}

// mayRotateKey replaces the worker's key if the operator wants it, if it is a year old, or
// if that was interrupted. It is called between two sessions.
func (w *Worker) mayRotateKey(ctx context.Context) {
	if w.member == nil || !w.cfg.RotateKey && !tlsconf.IsReplacingWorkerKey(w.dirs.root) &&
		tlsconf.WorkerKeyAge(w.dirs.root, time.Now()) < maxKeyAge {
		return
	}
	if err := w.rotateKey(ctx); err != nil {
		w.log.WarnContext(ctx, "key not replaced; trying again before the next session", "err", err)
		return
	}
	w.cfg.RotateKey = false
	w.log.InfoContext(ctx, "key replaced")
}

// rotateKey replaces the key. The cluster accepts both until the worker has used the new
// one. A process that is killed at any point continues here when it starts again.
func (w *Worker) rotateKey(ctx context.Context) error {
	next, err := tlsconf.NextWorkerKey(w.dirs.root)
	if err != nil {
		return err //nolint:wrapcheck // names the file
	}
	hash, err := keyHash(next)
	if err != nil {
		return err
	}
	announced := w.announceKey(ctx, w.key.Load(), hash)
	// Its error does not count if the old key was dropped by an earlier call.
	if err := w.announceKey(ctx, &next, hash); err != nil {
		if announced != nil {
			err = announced
		}
		return fmt.Errorf("replacing the worker's key: %w", err)
	}
	if err := tlsconf.UseNextWorkerKey(w.dirs.root); err != nil {
		return err //nolint:wrapcheck // says what it does
	}
	w.key.Store(&next)
	w.secureConnections() // as another configuration: open connections have the old key
	return nil
}

// announceKey calls RotateKey with a key of the worker.
func (w *Worker) announceKey(ctx context.Context, with *tls.Certificate, hash [32]byte) error {
	c, err := client.New(client.Config{
		Addrs: w.cfg.Join, Cluster: w.member.Cluster, UserAgent: "dtask-worker", Timeout: rotateKeyTimeout, Dial: w.joinDial(),
		Credentials: credentials.NewTLS(w.tlsWith(func() *tls.Certificate { return with })),
	})
	if err != nil {
		return err //nolint:wrapcheck // says what is wrong
	}
	defer func() { _ = c.Close() }() // its calls have ended
	return c.RotateWorkerKey(ctx, hash)
}
