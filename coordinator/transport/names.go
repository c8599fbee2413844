package transport

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	// lookupInterval is the least time between two lookups of a name that has no answer
	// yet. A query that was sent while the peer was down may never be answered, and one
	// that is sent after its return is.
	lookupInterval = 500 * time.Millisecond
	// lookupTimeout bounds a lookup, so that at most 20 of a name are in flight.
	lookupTimeout = 10 * time.Second
)

// names are the addresses of hosts, as last looked up. Lookups run in the background: they
// outlive the calls that need them. Its methods are safe for concurrent use.
type names struct {
	lookup func(ctx context.Context, host string) ([]string, error)

	mu    sync.Mutex // guards hosts and what it points to
	hosts map[string]*hostNames
}

// hostNames is what is known of one host.
type hostNames struct {
	addresses []string // of the last lookup that found some
	err       error    // of the last lookup
	began     time.Time
	pending   int           // lookups
	answered  chan struct{} // closed by the next answer, which replaces it
}

func newNames() *names {
	return &names{lookup: net.DefaultResolver.LookupHost, hosts: make(map[string]*hostNames)}
}

// refresh starts a lookup of a host, unless one is in flight that is not old. It returns the
// addresses that are known so far, and a channel that is closed when there is an answer.
func (n *names) refresh(ctx context.Context, host string) (known []string, answered <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hosts[host]
	if h == nil {
		h = &hostNames{answered: make(chan struct{})}
		n.hosts[host] = h
	}
	if now := time.Now(); h.pending == 0 || now.Sub(h.began) >= lookupInterval {
		h.pending++
		h.began = now
		go n.resolve(context.WithoutCancel(ctx), host, h) // ends after lookupTimeout
	}
	return slices.Clone(h.addresses), h.answered
}

// resolve looks up a host once.
func (n *names) resolve(ctx context.Context, host string, h *hostNames) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	addresses, err := n.lookup(ctx, host)
	n.mu.Lock()
	defer n.mu.Unlock()
	h.pending--
	h.err = err
	if err == nil {
		h.addresses = addresses
	}
	close(h.answered)
	h.answered = make(chan struct{})
}

// last returns the addresses of a host that are known, and the error of its last lookup.
func (n *names) last(host string) (addresses []string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hosts[host]
	return slices.Clone(h.addresses), h.err
}
