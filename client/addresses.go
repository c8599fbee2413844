package client

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// maxHints bounds the addresses that are kept beside the seeds. A cluster has
// at most five replicas, and they may move.
const maxHints = 16

// suspicion is how long an address that hung or was unreachable is tried after
// the others, and only after a short probe.
const suspicion = 5 * time.Second

// foreignRetryDelay is how long an address of another cluster is tried after all
// others. It may be given to a coordinator of this one.
const foreignRetryDelay = time.Minute

// An addressBook keeps the addresses of coordinators. Seeds are kept forever,
// hints from coordinators are replaced. Invariant: order returns every seed.
type addressBook struct {
	mu      sync.Mutex // guards the rest
	seeds   []string
	hints   []string // newest first, without seeds
	last    string   // last address that responded; empty if no address has
	sockets []string // that have led to a coordinator
	suspect map[string]time.Time
	foreign map[string]time.Time // addresses of other clusters, and until when
}

func newAddressBook(seeds []string) *addressBook {
	b := &addressBook{suspect: make(map[string]time.Time), foreign: make(map[string]time.Time)}
	for _, s := range seeds {
		if !slices.Contains(b.seeds, s) {
			b.seeds = append(b.seeds, s)
		}
	}
	return b
}

// order returns all addresses in the order in which they are tried: the last
// one that responded, the seeds, the hints, then suspects, and those of other
// clusters after all others.
func (b *addressBook) order() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]string, 0, len(b.seeds)+len(b.hints)+1)
	if b.last != "" {
		all = append(all, b.last)
	}
	for _, a := range slices.Concat(b.seeds, b.hints) {
		if a != b.last {
			all = append(all, a)
		}
	}
	now := time.Now()
	slices.SortStableFunc(all, func(x, y string) int {
		return b.rank(x, now) - b.rank(y, now)
	})
	return all
}

func (b *addressBook) rank(addr string, now time.Time) int {
	if until, ok := b.foreign[addr]; ok && now.Before(until) {
		return 2
	}
	if until, ok := b.suspect[addr]; ok && now.Before(until) {
		return 1
	}
	return 0
}

// learn adds an address that a coordinator returned.
func (b *addressBook) learn(addr string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if addr == "" || slices.Contains(b.seeds, addr) || (len(b.hints) > 0 && b.hints[0] == addr) {
		return
	}
	b.hints = slices.DeleteFunc(b.hints, func(h string) bool { return h == addr })
	b.hints = slices.Insert(b.hints, 0, addr)
	if len(b.hints) > maxHints {
		for _, h := range b.hints[maxHints:] {
			delete(b.suspect, h)
			delete(b.foreign, h)
		}
		b.hints = b.hints[:maxHints]
	}
}

// meet records that addr leads to a coordinator. It matters for sockets only, of which the
// seeds alone can be some.
func (b *addressBook) meet(addr string) {
	if _, ok := socketPath(addr); !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.sockets, addr) && slices.Contains(b.seeds, addr) {
		b.sockets = append(b.sockets, addr)
	}
}

// met reports whether a socket has led to a coordinator.
func (b *addressBook) met(addr string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.sockets, addr)
}

// answered records that the coordinator at addr took a call.
func (b *addressBook) answered(addr string) {
	b.meet(addr)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = addr
	delete(b.suspect, addr)
	delete(b.foreign, addr)
}

// leave records that addr belongs to another cluster. It is no longer a hint.
func (b *addressBook) leave(addr string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == addr {
		b.last = ""
	}
	now := time.Now()
	maps.DeleteFunc(b.foreign, func(_ string, until time.Time) bool { return now.After(until) })
	b.foreign[addr] = now.Add(foreignRetryDelay)
	b.hints = slices.DeleteFunc(b.hints, func(h string) bool { return h == addr })
}

// failed records that addr hung or was unreachable.
func (b *addressBook) failed(addr string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == addr {
		b.last = ""
	}
	b.suspect[addr] = time.Now().Add(suspicion)
}

// suspected reports whether addr has failed recently (see suspicion).
func (b *addressBook) suspected(addr string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rank(addr, time.Now()) == 1
}
