package cli

import (
	"context"
	"sync"
	"time"

	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// refreshTimeout bounds how long dtaskctl asks for the addresses of coordinators after the
// CA of the cluster has changed.
const refreshTimeout = 2 * time.Second

// changedCA is what a context should store of its cluster.
type changedCA struct {
	mu      sync.Mutex // guards the rest: handshakes are concurrent
	context string     // name; empty: nothing has changed
	ca      string     // certificates in PEM
}

// note notes that the cluster of a context has other CAs than the context.
func (c *changedCA) note(name, ca string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.context, c.ca = name, ca
}

func (c *changedCA) take() (name, ca string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name, ca = c.context, c.ca
	c.context = ""
	return name, ca
}

// keepCA stores the CAs and the coordinators of a cluster whose CA was replaced in the
// context that was used. Otherwise the context would be useless once the old CA is dropped.
func (a *app) keepCA(ctx context.Context) {
	name, ca := a.changedCA.take()
	if name == "" {
		return
	}
	if err := a.updateContext(name, func(s *savedContext) { s.CA, s.CAKeys = ca, nil }); err != nil {
		a.warn("warning: the CA of the cluster has changed, and the context %s was not updated: %s", name, err)
		return
	}
	a.note("the CA of the cluster has changed: updated the context %s", name)
	c, err := a.newClient(a.patient(refreshTimeout))
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }() // its calls have ended
	ctx, cancel := a.optional(ctx, refreshTimeout)
	defer cancel()
	status, err := c.ClusterStatus(ctx)
	if err != nil || len(status.GetMembers()) == 0 {
		return // the addresses that the context has are still good
	}
	var addresses []string
	for _, m := range status.GetMembers() {
		addresses = append(addresses, m.GetAddress())
	}
	if err := a.updateContext(name, func(s *savedContext) { s.Addresses = addresses }); err != nil {
		a.warn("warning: the context %s was not updated: %s", name, err)
	}
}

// noteRotated notes the CAs that a cluster has after this command has replaced them: the
// connection was made before.
func (a *app) noteRotated(cas []*dtaskv1.CertificateAuthority) {
	var ders [][]byte
	for _, ca := range cas {
		ders = append(ders, ca.GetCertificate())
	}
	roots, err := tlsconf.ParseBundle(ders)
	if err == nil && len(roots) > 0 && a.usedContext != "" {
		a.changedCA.note(a.usedContext, tlsconf.EncodeRoots(roots))
	}
}

// updateContext changes a stored context.
func (a *app) updateContext(name string, change func(*savedContext)) error {
	_, err := changeContexts(a.getenv, func(all *contexts) error {
		saved, err := all.get(name)
		if err == nil {
			change(saved)
		}
		return err
	})
	return err
}
