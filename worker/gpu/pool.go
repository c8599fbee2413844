package gpu

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// whole is a whole GPU in thousandths.
const whole = 1000

// A Pool gives attempts their GPUs. A whole one is of one attempt alone; parts share one.
//
// The coordinators never assign more than the sum of all GPUs, but parts can be left on so many
// of them that no whole one is free. Then an attempt waits for the end of others on this
// worker. Waiting attempts are served in order: none is overtaken, so each waits at most until
// all attempts that had a GPU before it have ended.
//
// All methods may be called concurrently.
type Pool struct {
	ids []string

	mu      sync.Mutex // guards the rest
	free    []int64    // of each GPU, in thousandths
	waiting []*request // in order; the first one does not fit
}

// request is an attempt that waits. ready is closed once it has its GPUs.
type request struct {
	amount int64
	grant  *Grant
	ready  chan struct{}
}

// NewPool returns a pool of GPUs that nobody uses.
func NewPool(d Devices) *Pool {
	p := &Pool{ids: d.IDs, free: make([]int64, len(d.IDs))}
	for i := range p.free {
		p.free[i] = whole
	}
	return p
}

// A Grant is what an attempt got. It must be released once.
type Grant struct {
	// IDs name its GPUs. The last one may be shared.
	IDs []string

	pool   *Pool
	shares []share
}

// share is what a grant takes of one GPU.
type share struct {
	device int
	amount int64 // thousandths
}

// Take gives an amount of GPUs, in thousandths above 0: as many whole ones as it has, and a
// part of another one. It waits until they are free, and calls waits first if they aren't. It
// returns an error if the pool has less, or the cause of ctx if that ends meanwhile.
func (p *Pool) Take(ctx context.Context, amount int64, waits func()) (*Grant, error) {
	if amount <= 0 || amount > int64(len(p.ids))*whole {
		return nil, fmt.Errorf("%g GPUs requested, and this worker has %d", float64(amount)/whole, len(p.ids))
	}
	r := &request{amount: amount, ready: make(chan struct{})}
	p.mu.Lock()
	p.waiting = append(p.waiting, r)
	p.serve()
	p.mu.Unlock()
	select {
	case <-r.ready:
		return r.grant, nil
	default:
	}
	waits()
	select {
	case <-r.ready:
		return r.grant, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.grant != nil { // it came at the same time
		p.put(r.grant)
	}
	p.waiting = slices.DeleteFunc(p.waiting, func(other *request) bool { return other == r })
	p.serve()
	return nil, context.Cause(ctx)
}

// Release returns the GPUs.
func (g *Grant) Release() {
	g.pool.mu.Lock()
	defer g.pool.mu.Unlock()
	g.pool.put(g)
	g.pool.serve()
}

func (p *Pool) put(g *Grant) {
	for _, s := range g.shares {
		p.free[s.device] += s.amount
	}
	g.shares = nil
}

// serve gives GPUs to those that wait, in order, until one does not fit.
func (p *Pool) serve() {
	for len(p.waiting) > 0 {
		r := p.waiting[0]
		shares, fits := p.choose(r.amount)
		if !fits {
			return
		}
		r.grant = &Grant{pool: p, shares: shares}
		for _, s := range shares {
			p.free[s.device] -= s.amount
			r.grant.IDs = append(r.grant.IDs, p.ids[s.device])
		}
		p.waiting = p.waiting[1:]
		close(r.ready)
	}
}

// choose returns shares that are free: the first GPUs that are wholly free for the whole ones,
// and for the part the one with the least left that suffices, so that whole ones stay free.
func (p *Pool) choose(amount int64) (shares []share, fits bool) {
	left := amount / whole
	for i := 0; i < len(p.free) && left > 0; i++ {
		if p.free[i] == whole {
			shares = append(shares, share{device: i, amount: whole})
			left--
		}
	}
	if left > 0 {
		return nil, false
	}
	part := amount % whole
	if part == 0 {
		return shares, true
	}
	best := -1
	for i, free := range p.free {
		taken := slices.ContainsFunc(shares, func(s share) bool { return s.device == i })
		if !taken && free >= part && (best < 0 || free < p.free[best]) {
			best = i
		}
	}
	if best < 0 {
		return nil, false
	}
	return append(shares, share{device: best, amount: part}), true
}
