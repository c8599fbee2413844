package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/coordinator/raftnode"
)

// replica is one coordinator over all its processes.
type replica struct {
	c       *cluster
	id      string
	address string
	disk    *disk
	lives   int // data directories so far
	// certificate is the directory of the certificate, which is not part of the copies of
	// the data directory; "" without TLS.
	certificate string
	leads       atomic.Bool

	process *process // the last one; nil before the first
}

// process is one process of a replica. It has a data directory of its own: a copy of
// that of the process before, as it was when that one ended. So what is left of a
// process in the simulation, goroutines that still run, changes nothing that its
// successor reads, as if the kernel had ended them.
type process struct {
	r      *replica
	dir    string
	image  string // the directory of the successor, if it is copied already
	host   host
	silent bool  // nobody learns of its end before the replica starts again
	gate   *gate // to its store
	cancel context.CancelFunc
	done   chan struct{} // closed when Run has returned
	failed atomic.Bool   // it ended by itself
	aside  atomic.Bool   // it has quarantined its directory
	// refuses: it ended because it would have lost committed entries.
	refuses atomic.Bool
	killed  atomic.Bool
}

// ended reports whether the replica's process ended by itself.
func (r *replica) ended() bool { return r.process.failed.Load() }

// start starts a process of the replica, whose last one has ended or was killed.
func (r *replica) start() {
	p := &process{
		r: r, dir: r.successor(), host: host{r.c.net, r.address, new(atomic.Bool)},
		gate: newGate(), done: make(chan struct{}),
	}
	if last := r.process; last != nil && last.silent {
		r.c.net.reset(r.address)
		r.isolate(false)
	}
	if last := r.process; last != nil {
		r.c.running.Go(func() {
			<-last.done
			_ = os.RemoveAll(last.dir) // what it leaves is removed with the cluster
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	r.process = p
	r.c.running.Go(func() {
		defer close(p.done)
		err := coordinator.Run(ctx, p.config())
		p.gate.end()
		p.host.exit(true)
		if ctx.Err() != nil || p.killed.Load() {
			return
		}
		r.leads.Store(false)
		r.c.fatals.Add(1)
		_, fatal := errors.AsType[*coordinator.FatalError](err)
		_, refuses := errors.AsType[*raftnode.ConflictError](err)
		p.refuses.Store(refuses)
		if !fatal || refuses && !r.c.hasOldCopy {
			r.c.fail("replica %s ended with %v", r.id, err)
		}
		p.failed.Store(true)
	})
}

func (p *process) config() coordinator.Config {
	c := p.r.c
	var peers []coordinator.Peer
	for _, r := range c.replicas {
		peers = append(peers, coordinator.Peer{ID: r.id, Address: r.address})
	}
	return coordinator.Config{
		ID: p.r.id, TLSDir: p.r.certificate, DataDir: p.dir, Listen: p.r.address, Peers: peers, Logger: slog.New(&logReader{p}),
		Seams: coordinator.Seams{Store: p.wrap, Network: p.host, Socket: p.host.Listen}, TimeScale: c.pace,
		SnapshotBytes: 16 << 10, TrailingLogs: 64, MinFree: &coordinator.MinFree{}, LogStore: coordinator.LogStore(c.store),
	}
}

// successor returns the data directory of the replica's next process.
func (r *replica) successor() string {
	p := r.process
	if p == nil {
		r.lives++
		return filepath.Join(r.c.dir, r.id+".1")
	}
	if p.image == "" { // it was not killed
		<-p.done
		p.cancel()
		synctest.Wait()
		p.restoreQuarantined()
		p.copyDirectory()
	}
	return p.image
}

// restoreQuarantined undoes the quarantine of a data directory: the bit flipped
// in transfer from the disk, as an operator who checks the directory would
// find.
func (p *process) restoreQuarantined() {
	quarantined, err := datadir.Quarantined(p.dir)
	if len(quarantined) > 0 {
		err = errors.Join(os.RemoveAll(p.dir), os.Rename(quarantined[0], p.dir))
	}
	if err != nil {
		p.r.c.fail("restoring the data directory of %s: %v", p.r.id, err)
	}
}

// stop ends the process in an orderly way and waits.
func (r *replica) stop() {
	r.process.cancel()
	<-r.process.done
	r.leads.Store(false)
}

// kill ends processes at the same instant, as SIGKILL or a power failure does, except
// those that have just ended by themselves. Nothing is flushed: of the writes that are
// in progress, each is on the disk or lost, and all later ones are lost. Their
// connections break immediately, or are silent until the replica starts again.
func (c *cluster) kill(reset bool, some ...*replica) { c.killKeeping(c.likely, reset, some...) }

// killKeeping is kill with kept deciding which of the writes in progress are on the
// disk.
func (c *cluster) killKeeping(kept func() bool, reset bool, some ...*replica) {
	synctest.Wait()
	var killed []*process
	for _, r := range some {
		if !r.ended() {
			killed = append(killed, r.process)
		}
	}
	for _, p := range killed {
		p.killed.Store(true)
		p.gate.kill(kept)
	}
	synctest.Wait() // what is kept is written; nobody continues
	for _, p := range killed {
		p.copyDirectory()
		p.r.leads.Store(false)
		if p.silent = !reset; p.silent {
			p.r.isolate(true)
		}
		p.host.exit(reset)
	}
	for _, p := range killed {
		p.gate.end()
		p.cancel()
	}
}

// isolate partitions the replica from all other hosts.
func (r *replica) isolate(cut bool) {
	for _, a := range r.c.everybody() {
		if a != r.address {
			r.c.net.setCut(r.address, a, cut)
			r.c.net.setCut(a, r.address, cut)
		}
	}
}

// logReader learns from a process's log when it leads.
type logReader struct{ p *process }

func (*logReader) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (h *logReader) Handle(_ context.Context, rec slog.Record) error {
	if h.p.host.gone() {
		return nil
	}
	r := h.p.r
	switch rec.Message {
	case "leading":
		r.leads.Store(true)
		r.c.terms.Add(1)
	case "session opened":
		r.c.sessions.Add(1)
	case "quarantined data directory":
		h.p.aside.Store(true)
	case "no longer leading":
		r.leads.Store(false)
	}
	if verbose {
		text := ""
		rec.Attrs(func(a slog.Attr) bool { text += fmt.Sprintf(" %s=%v", a.Key, a.Value); return true })
		fmt.Fprintf(os.Stderr, "%v %s %s %s%s\n", time.Since(r.c.began), r.id, rec.Level, rec.Message, text)
	}
	return nil
}

func (h *logReader) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h *logReader) WithGroup(string) slog.Handler      { return h }
