package tlsconf

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// WatchInterval is how often the files are read. Kubernetes replaces links, and network
// file systems report no changes, so that only reading them finds out.
const WatchInterval = 10 * time.Second

// Watcher follows the certificate of a replica on disk. Its methods are safe for
// concurrent use.
type Watcher struct {
	dir      string
	interval time.Duration
	reloaded func(*Replica)
	checked  func(error)

	current  atomic.Pointer[Replica]
	failures atomic.Uint64
}

// WatcherConfig is what NewWatcher needs.
type WatcherConfig struct {
	Dir string // with tls.crt, tls.key and ca.crt
	// Interval is how often the files are read; default 10 s.
	Interval time.Duration
	// Reloaded is called after each change that was accepted. Checked is called after each
	// reading, with the error for which the files are refused; the old ones stay in use
	// then. Both are called by Run. Optional.
	Reloaded func(*Replica)
	Checked  func(err error)
}

// NewWatcher loads the certificate of a directory.
func NewWatcher(cfg WatcherConfig) (*Watcher, error) {
	first, err := LoadReplica(cfg.Dir)
	if err != nil {
		return nil, err
	}
	w := &Watcher{dir: cfg.Dir, interval: cfg.Interval, reloaded: cfg.Reloaded, checked: cfg.Checked}
	if w.interval == 0 {
		w.interval = WatchInterval
	}
	w.current.Store(first)
	return w, nil
}

// Current returns the certificate that is in use. It is a Source.
func (w *Watcher) Current() *Replica { return w.current.Load() }

// Failures returns how many times the files were read and refused.
func (w *Watcher) Failures() uint64 { return w.failures.Load() }

// Run follows the files until ctx is done.
func (w *Watcher) Run(ctx context.Context) {
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.Check()
		}
	}
}

// Check reads the files once, as Run does. Safe for concurrent use.
func (w *Watcher) Check() {
	next, changed, err := w.read()
	if err != nil {
		w.failures.Add(1)
	} else if changed {
		w.current.Store(next)
		if w.reloaded != nil {
			w.reloaded(next)
		}
	}
	if w.checked != nil {
		w.checked(err)
	}
}

// read reads the files, which must be of the same replica as before.
func (w *Watcher) read() (next *Replica, changed bool, err error) {
	old := w.Current()
	if next, err = LoadReplica(w.dir); err != nil {
		return nil, false, err
	}
	if next.ClusterID != old.ClusterID || next.ServerID != old.ServerID {
		return nil, false, fmt.Errorf("%s has the certificate of replica %s of cluster %s now, and this is replica %s of cluster %s: restart to change it",
			w.dir, next.ServerID, next.ClusterID, old.ServerID, old.ClusterID)
	}
	return next, next.sum != old.sum, nil
}
