package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dtask/dtask/internal/audit"
	"github.com/dtask/dtask/internal/timescale"
)

// Mode is what happens when the log can't be written.
type Mode string

// The modes.
const (
	ModeOff        Mode = "off"         // there is no log
	ModeBestEffort Mode = "best-effort" // calls continue, and lines may be lost
	ModeRequired   Mode = "required"    // changes are refused
)

// Validate returns an error for an unknown mode.
func (m Mode) Validate() error {
	switch m {
	case ModeOff, ModeBestEffort, ModeRequired:
		return nil
	}
	return fmt.Errorf("unknown mode %q: must be off, best-effort or required", m)
}

// Defaults of the retention.
const (
	DefaultFileBytes = 16 << 20
	DefaultFiles     = 32
)

const (
	// syncInterval is how often lines are written and synced, and how long denials are
	// counted together.
	syncInterval = time.Second
	// maxPending bounds the lines in memory; refuseAt is the number from which on
	// ModeRequired refuses changes, so that those that are in progress have space.
	maxPending = 20_000
	refuseAt   = 10_000
	wakeAt     = 2_000
	// maxBatch bounds the lines of one write.
	maxBatch = 4_000
)

// Config is what a Log needs. Functions are called from many goroutines and must not
// block.
type Config struct {
	Dir      string // created if it does not exist
	ServerID string
	Version  string // of the build
	Mode     Mode   // ModeBestEffort or ModeRequired
	Reads    bool   // read calls are recorded, too
	// FileBytes is the size from which on a file is followed by another one; Files is how
	// many are kept. 0 = the defaults.
	FileBytes int64
	Files     int
	// Wall is the wall clock.
	Wall func() time.Time
	// Index returns the log index that this replica has applied.
	Index func() uint64
	// Known returns the head of this log in the replicated state; zero if it has none.
	Known func() audit.Head
	// Cluster returns the ID of the cluster; empty if it is unknown.
	Cluster   func() string
	Logger    *slog.Logger
	TimeScale timescale.Factor
	// Open opens a file; nil = that of the operating system. For tests.
	Open func(path string) (File, error)
}

// Stats are counters of a Log, since it was made.
type Stats struct {
	Lines    uint64 // written
	Lost     uint64 // not written
	Failures uint64 // attempts to write that failed
}

// Log is the audit log of a coordinator. Its methods are safe for concurrent use.
type Log struct {
	cfg  Config
	wake chan struct{} // size 1: lines are written early

	mu      sync.Mutex // guards what follows
	pending []audit.Record
	window  denials
	lost    uint64 // since the last line about it
	failing error  // of the last attempt to write
	damage  string // what the files lacked when this process compared them
	head    audit.Head
	opened  bool // head is known
	stats   Stats

	// What follows belongs to Run.
	w         *writer         // nil: not open
	cluster   string          // ID that a line of the open file has; empty: it is unknown
	recent    [256]audit.Head // heads that this process has written last, in a ring
	next      int             // of recent
	confirmed audit.Head      // the last known head that the files were compared with
}

// New returns a Log. The caller runs Run.
func New(cfg Config) *Log {
	cfg.FileBytes, cfg.Files = cmp.Or(cfg.FileBytes, DefaultFileBytes), cmp.Or(cfg.Files, DefaultFiles)
	if cfg.Open == nil {
		cfg.Open = openFile
	}
	return &Log{cfg: cfg, wake: make(chan struct{}, 1), window: make(denials)}
}

// Reads reports whether read calls are recorded.
func (l *Log) Reads() bool { return l.cfg.Reads }

// ErrUnavailable is returned by Admit.
var ErrUnavailable = errors.New("the audit log can't be written, and --audit=required refuses changes without it: see dtaskctl cluster status")

// Admit returns ErrUnavailable if a change must not happen now, because it could not be
// recorded.
func (l *Log) Admit() error {
	if l.cfg.Mode != ModeRequired {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuses() {
		return ErrUnavailable
	}
	return nil
}

// refuses reports whether changes are refused. The caller holds mu.
func (l *Log) refuses() bool {
	return l.cfg.Mode == ModeRequired && (l.failing != nil || len(l.pending) >= refuseAt)
}

// Record adds a line; its number, time, index and hash are set. It never waits: if too
// many lines are waiting, the line is lost, and counted. Denials of one caller beyond
// maxDenials in a second become one line.
func (l *Log) Record(r audit.Record) {
	r.At, r.Index = audit.FormatTime(l.cfg.Wall()), l.cfg.Index()
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Decision == audit.Denied && !l.window.admit(r) {
		return
	}
	l.add(r)
}

// add adds a line. The caller holds mu.
func (l *Log) add(r audit.Record) {
	if len(l.pending) >= maxPending {
		l.lost++
		l.stats.Lost++
		return
	}
	l.pending = append(l.pending, r)
	if len(l.pending) == wakeAt {
		select {
		case l.wake <- struct{}{}:
		default: // it is awake
		}
	}
}

// Head returns the last line that is on the disk. ok is false before the files are open.
func (l *Log) Head() (head audit.Head, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head, l.opened && l.head.Seq > 0
}

// Stats returns the counters.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}

// Problem returns what an operator must know of the log; empty if it is in order.
func (l *Log) Problem() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.failing != nil && l.cfg.Mode == ModeRequired:
		return fmt.Sprintf("the audit log in %s can't be written, so changes are refused (--audit=required): %v", l.cfg.Dir, l.failing)
	case l.failing != nil:
		return fmt.Sprintf("the audit log in %s can't be written, and lines get lost when too many wait: %v", l.cfg.Dir, l.failing)
	case l.lost > 0 || l.refuses():
		return fmt.Sprintf("the audit log in %s is written too slowly: %d lines are waiting, and %d were lost (--audit=%s)", l.cfg.Dir, len(l.pending), l.lost, l.cfg.Mode)
	case l.damage != "":
		return fmt.Sprintf("the audit log in %s was cut or changed: %s; dtaskctl audit verify names the place", l.cfg.Dir, l.damage)
	}
	return ""
}

// Run writes the lines until ctx is done, and then those that are left. Files that can't
// be written are tried again every second.
func (l *Log) Run(ctx context.Context) {
	tick := time.NewTicker(l.cfg.TimeScale.Scale(syncInterval))
	defer tick.Stop()
	l.step(ctx, false)
	for {
		select {
		case <-ctx.Done():
			l.step(ctx, true)
			l.close()
			return
		case <-tick.C:
			l.step(ctx, true)
		case <-l.wake:
			l.step(ctx, false)
		}
	}
}

// step opens the files if necessary, and writes what is pending. second is whether a
// second of denials has ended.
func (l *Log) step(ctx context.Context, second bool) {
	if second {
		l.mu.Lock()
		for _, r := range l.window.end(audit.FormatTime(l.cfg.Wall()), l.cfg.Index()) {
			l.add(r)
		}
		l.mu.Unlock()
	}
	err := l.open()
	if err == nil {
		err = l.compare()
	}
	if err == nil {
		err = l.nameCluster()
	}
	for more := true; err == nil && more; {
		more, err = l.flush()
	}
	if err != nil {
		l.close()
	}
	l.note(ctx, err)
}

// note notes whether the log can be written.
func (l *Log) note(ctx context.Context, err error) {
	l.mu.Lock()
	before := l.failing
	l.failing = err
	if err != nil {
		l.stats.Failures++
	}
	l.mu.Unlock()
	switch {
	case err != nil && before == nil:
		l.cfg.Logger.ErrorContext(ctx, "audit log not written; trying again every second", "err", err)
	case err == nil && before != nil:
		l.cfg.Logger.InfoContext(ctx, "audit log is written again")
	}
}

// flush writes and syncs some of the pending lines. more: others are left.
func (l *Log) flush() (more bool, err error) {
	l.mu.Lock()
	batch := l.pending[:min(len(l.pending), maxBatch)]
	lost := l.lost
	l.mu.Unlock()
	if len(batch) == 0 && lost == 0 {
		return false, nil
	}
	if lost > 0 {
		batch = append(slices.Clone(batch), l.own(audit.MethodLost, audit.Failed, "too many lines were waiting to be written", lost))
	}
	if err := l.write(batch...); err != nil {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost -= lost
	if lost > 0 {
		batch = batch[:len(batch)-1]
	}
	l.pending = slices.Clone(l.pending[len(batch):])
	return len(l.pending) > 0, nil
}

// write writes and syncs lines, and begins another file if this one is full.
func (l *Log) write(batch ...audit.Record) error {
	if l.w.size >= l.cfg.FileBytes {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	return l.append(batch...)
}

// append writes and syncs lines.
func (l *Log) append(batch ...audit.Record) error {
	if err := l.w.write(batch...); err != nil {
		return err
	}
	l.recent[l.next%len(l.recent)] = l.w.head
	l.next++
	l.mu.Lock()
	defer l.mu.Unlock()
	l.head, l.opened = l.w.head, true
	l.stats.Lines += uint64(len(batch))
	return nil
}

// own is a line of the log about itself.
func (l *Log) own(method string, d audit.Decision, reason string, count uint64) audit.Record {
	return audit.Record{
		At: audit.FormatTime(l.cfg.Wall()), Who: l.cfg.ServerID, Method: method, Object: l.cfg.ServerID,
		Decision: d, Reason: reason, Count: count, Index: l.cfg.Index(),
	}
}
