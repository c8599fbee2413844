package coordinator

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dtask/dtask/coordinator/leader"
	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
)

// leadership is the duty of leading: it runs a sequencer for each term. Without one
// this replica serves neither workers nor writes.
type leadership struct {
	cfg                *Config
	newClusterID       func() string
	serverID, instance string
	machine            *fsm.Machine
	node               *atomic.Pointer[raftnode.Node]
	totals             *sequencer.Totals
	reconciler         *membership.Reconciler
	clock              *clockMonitor
	credentialClock    func() time.Time
	notifier           *notifier
	historyBusy        func() bool
	checkAudit         func() error
	halt               func(error)
	log                *slog.Logger

	term     atomic.Pointer[sequencer.Sequencer] // nil outside of a term; set by setTerm
	terms    atomic.Uint64                       // led by this replica
	disputed atomic.Bool                         // the replicas disagree: assignment is stopped

	mu      sync.Mutex    // guards changed
	changed chan struct{} // closed when term changes; nil: nobody waits
}

// Name implements leader.Duty.
func (*leadership) Name() string { return "sequencer" }

// Run implements leader.Duty.
func (l *leadership) Run(ctx context.Context, number uint64) error {
	node, cfg := l.node.Load(), l.cfg
	wake, committed := wakeChannel()
	s, err := sequencer.New(sequencer.Config{
		Members: l.reconciler.Unrecorded(ctx), ServerID: l.serverID, Instance: l.instance, Term: number,
		Log: cfg.Seams.Log(ctx, proposer{node}), Machine: l.machine,
		Logger: l.log.With("term", number), Totals: l.totals, Definite: neverProposed, WallClock: cfg.Wall, CredentialClock: l.credentialClock,
		NewClusterID: l.newClusterID, Seed: randomSeed(), TimeScale: cfg.TimeScale,
		LivenessTimeout: cfg.livenessTimeout(), StartTimeout: cfg.StartTimeout, KeepFor: cfg.KeepFor, KeepJobs: cfg.KeepJobs,
		HistoryAge: cfg.HistoryAge, HistoryBusy: l.historyBusy, ClockAgrees: l.clock.agrees,
		Halt: l.halt, CheckSubmit: func() error { return cmp.Or(checkSpace(node), l.checkAudit()) },
		DeadLetterNotifications: l.notifier.hooks.DeadLetterKinds(), NotificationsCommitted: committed,
	})
	if err != nil {
		return err
	}
	s.StopAssigning(l.disputed.Load())
	l.setTerm(s)
	defer l.setTerm(nil)
	l.terms.Add(1)
	return l.notifier.runBeside(ctx, s, wake)
}

// setTerm sets the current term, and wakes everyone who waits for one.
func (l *leadership) setTerm(s *sequencer.Sequencer) {
	l.term.Store(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// termChanged returns a channel that is closed when the term changes.
func (l *leadership) termChanged() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed
}

// elected reports whether this replica was elected and its term has not started yet.
func (l *leadership) elected() bool {
	node := l.node.Load()
	if node == nil || !node.Leading() {
		return false
	}
	var started uint64
	l.machine.Read(func(s *fsm.State, _ uint64) { started, _ = s.Term() })
	return started != node.Term()
}

// dispute stops assignment in this and later terms, or allows it again.
func (l *leadership) dispute(disputed bool) {
	l.disputed.Store(disputed)
	if s := l.term.Load(); s != nil {
		s.StopAssigning(disputed)
	}
}

// established reports whether the term is served.
func (l *leadership) established() bool {
	s := l.term.Load()
	if s == nil {
		return false
	}
	select {
	case <-s.Ready():
		return true
	default:
		return false
	}
}

// minScanRate is the number of tasks that any leader scans per second.
const minScanRate = 100_000

// watchdog ends a term that is not established in time, or in which nothing is applied.
func (l *leadership) watchdog(node *raftnode.Node) leader.Watchdog {
	return leader.Watchdog{
		Progress: node.Progress, TimeScale: l.cfg.TimeScale, Established: l.established,
		ScanTime: func() time.Duration {
			var tasks uint64
			l.machine.Read(func(s *fsm.State, _ uint64) {
				for job := range s.Jobs(0) {
					tasks += uint64(job.Total)
				}
			})
			return time.Duration(tasks) * time.Second / minScanRate //nolint:gosec // far below 2^63 / 10^9
		},
	}
}

// spaceRetryDelay is the retry delay of a submission that is refused for lack of disk
// space, which does not return within milliseconds.
const spaceRetryDelay = 5 * time.Second

// checkSpace returns why new jobs are refused, if they are.
func checkSpace(disk interface{ LowSpace() bool }) error {
	if disk.LowSpace() {
		return &sequencer.BusyError{
			What:  "disk nearly full at the leader",
			Limit: sequencer.LimitDisk, RetryAfter: spaceRetryDelay,
		}
	}
	return nil
}

func randomSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint64(b[:])
}
