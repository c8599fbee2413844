package access

import (
	"context"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
)

// call is an open call of an identity.
type call struct {
	hash      hash
	principal *auth.Principal
	expiresMS int64                   // of the credential, which a rotation may change; guarded by Registry.mu
	end       context.CancelCauseFunc // ends the access
	cut       context.CancelFunc      // ends the call
}

// cutDelay is how long the call of a caller that has lost access may take to end with the
// reason. gRPC ends a call without a reason when its context ends.
const cutDelay = time.Second

// revoke ends the access of a call.
func (c *call) revoke(reason *UnauthenticatedError) {
	c.end(reason)
	time.AfterFunc(cutDelay, c.cut)
}

// maxUsed bounds the credentials whose last use is remembered: twice as many as there can
// be.
const maxUsed = 400_000

// keep registers an open call until its context is done, and returns the context of
// Authenticate. It fails if the identities have changed since the generation in which the
// credential was looked up: a change after keep finds the call, and one before is noticed
// here.
func (r *Registry) keep(ctx context.Context, h hash, p *auth.Principal, generation uint64) (context.Context, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.generation != generation {
		return nil, false
	}
	r.known[h] = p
	r.noteUse(h)
	ctx, cut := context.WithCancel(ctx)
	access, end := context.WithCancelCause(ctx)
	c := &call{hash: h, principal: p, expiresMS: p.ExpiresMS, end: end, cut: cut}
	r.calls[c] = struct{}{}
	context.AfterFunc(access, func() {
		end(nil) // the call has ended, or its access has: either way nothing is left
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.calls, c)
	})
	if p.ExpiresMS != 0 {
		select {
		case r.wake <- struct{}{}:
		default: // it is awake
		}
	}
	return auth.WithAccess(context.WithValue(ctx, callKey{}, c), access), true
}

// noteUse notes that a credential is used now. The caller holds mu.
func (r *Registry) noteUse(h hash) {
	if len(r.used) >= maxUsed {
		clear(r.used) // of credentials that were forgotten long ago, mostly
	}
	r.used[h] = r.cfg.Now().UnixMilli()
}

// callKey is the key of the call in the context that keep returns.
type callKey struct{}

// Abandon ends a call that Authenticate has let in and that is refused before it has a
// handler: gRPC ends the context of such a call neither then nor with its connection, so
// that the call would be kept forever.
func (r *Registry) Abandon(ctx context.Context) {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		c.cut()
	}
}

// Outlive lets a call end by itself, although its credential may stop counting meanwhile: a
// caller that ends its own access must get the answer.
func (r *Registry) Outlive(ctx context.Context) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.calls, c)
}

// Run ends the calls whose credential is revoked or expires, until ctx is done.
func (r *Registry) Run(ctx context.Context) {
	watch := r.cfg.Machine.WatchIdentities()
	defer watch.Close()
	r.endRevoked() // changes before the watch are not signaled
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-watch.Changed:
			r.endRevoked()
		case <-r.wake:
		case <-timer.C:
		}
		timer.Reset(r.endExpired())
	}
}

// endRevoked ends the calls whose credential no longer counts, and notes when those of the
// others expire. Several at once take turns: one that has read the state earlier must not note
// later when calls expire.
func (r *Registry) endRevoked() {
	r.ending.Lock()
	defer r.ending.Unlock()
	calls := r.nextGeneration()
	expires := make([]int64, len(calls))
	r.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		for n, c := range calls {
			expires[n] = -1
			if identity := st.IdentityByHash(c.hash); identity != nil {
				expires[n] = identity.Credential(c.hash).ExpiresMS
			}
		}
	})
	r.mu.Lock()
	for n, c := range calls {
		c.expiresMS = expires[n]
	}
	r.mu.Unlock()
	for n, c := range calls {
		if expires[n] < 0 {
			c.revoke(&UnauthenticatedError{Reason: "the access of " + c.principal.Name + " was revoked during the call, which may have had its effect"})
		}
	}
}

// nextGeneration forgets what was looked up, and returns the open calls. Calls that are
// opened later look up again.
func (r *Registry) nextGeneration() []*call {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.generation++
	clear(r.known)
	calls := make([]*call, 0, len(r.calls))
	for c := range r.calls {
		calls = append(calls, c)
	}
	return calls
}

// maxExpiryWait bounds how long a change of the wall clock goes unnoticed.
const maxExpiryWait = 10 * time.Second

// endExpired ends the calls whose credential has expired, and returns the time until the
// next one may.
func (r *Registry) endExpired() time.Duration {
	now := r.cfg.Now().UnixMilli()
	wait := maxExpiryWait
	var ended []*call
	r.mu.Lock()
	for c := range r.calls {
		switch left := c.expiresMS - now; {
		case c.expiresMS <= 0: // never, or revoked
		case left <= 0:
			ended = append(ended, c)
		default:
			wait = min(wait, time.Duration(left)*time.Millisecond)
		}
	}
	r.mu.Unlock()
	for _, c := range ended {
		c.revoke(&UnauthenticatedError{Reason: "the credential of " + c.principal.Name + " has expired during the call, which may have had its effect: ask an administrator for another one"})
	}
	return wait
}

// lastUsed returns when this replica last saw a credential, Unix milliseconds; 0 = never.
func (r *Registry) lastUsed(h hash) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used[h]
}
