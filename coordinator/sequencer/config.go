package sequencer

import (
	"errors"
	"log/slog"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/timescale"
	"github.com/dtask/dtask/internal/zoneinfo"
)

// Log takes the entries that the sequencer proposes.
type Log interface {
	// Propose submits an entry and returns immediately. The caller must not
	// change data afterwards. Entries are appended and applied in the order of
	// the calls.
	Propose(data []byte) Proposal
}

// Proposal is an entry in flight.
type Proposal interface {
	// Wait returns the machine's response after the entry is committed and
	// applied on this replica. An error for which Config.Definite is true means
	// that the entry will never be committed; after any other error its outcome
	// is unknown.
	Wait() (response any, index uint64, err error)
}

// Config configures a Sequencer. A zero limit means its default.
type Config struct {
	ServerID string
	Instance string // UUID of this replica's data directory
	// Members are instances of other members that are not recorded yet. They go
	// into the term's first entry: they must be known before anything is
	// acknowledged.
	Members []fsm.Replica
	Term    uint64
	Log     Log
	Machine *fsm.Machine
	Logger  *slog.Logger
	Totals  *Totals // counters and distributions over all terms

	// Definite reports whether an error of Proposal.Wait means that the entry
	// was never proposed. nil: never.
	Definite func(error) bool
	// WallClock stamps entries and decides when a retry is due. Timeouts use
	// the monotonic clock instead. nil: time.Now.
	WallClock func() time.Time
	// CredentialClock is the time at which credentials and join tokens are made, end and are
	// used, and from which idempotency keys are remembered: that of the cluster, if the wall
	// clock of this replica is wrong. The sequencer's goroutine calls it; it must not block.
	// nil: WallClock.
	CredentialClock func() time.Time
	// NewClusterID returns the id of a new cluster, 32 hexadecimal digits.
	NewClusterID func() string
	// Halt is called once if the replicated state differs from the view. The
	// memory of this replica is damaged then, and it must stop.
	Halt func(error)
	// CheckSubmit returns why new jobs are refused now, such as a nearly full
	// disk, or nil. Running jobs continue, and a known idempotency key is still
	// answered. It must not block. nil: new jobs are never refused.
	CheckSubmit func() error
	// DeadLetterNotifications are the kinds of notification that a new dead
	// letter causes, as configured on this replica: LetterWebhookNotice,
	// LetterCommandNotice, both or none.
	DeadLetterNotifications []fsm.NotificationKind
	// NotificationsCommitted is called after an entry with new notifications is
	// committed. It must not block. nil: not called.
	NotificationsCommitted func()
	// ClockAgrees reports whether the wall clock is believed to be right.
	// Nothing expires by age and no schedule fires while it returns false. It must
	// be safe for concurrent use, and must not block. nil: always right.
	ClockAgrees func() bool
	// Zone returns the time zone of a name, for schedules. nil: of those in the program.
	Zone func(name string) (*time.Location, error)
	// Seed breaks ties between equally loaded workers.
	Seed uint64

	// InFlight is the maximum number of entries in flight; default 2. A larger
	// number hides more of the log's latency and makes entries smaller.
	InFlight int
	// EntryBytes closes an entry; default 256 KiB.
	EntryBytes int
	// EntryOps closes an entry; default 8192 operations.
	EntryOps int
	// InboxReports and InboxOthers bound the messages and the requests that
	// wait; default 4096 each.
	InboxReports, InboxOthers int
	// MaxTasks bounds the tasks in memory; new jobs above it are refused.
	// Default 20 million.
	MaxTasks uint64
	// MaxKeys bounds the idempotency keys in memory; new jobs above it are
	// refused. Default 4 million.
	MaxKeys int
	// MaxResults (2 to 1,048,576) and MaxResultBytes (up to 512 MiB) bound the
	// cached results of pure tasks; default 100,000 and 64 MiB. Results closest
	// to their expiry are evicted first.
	MaxResults     int
	MaxResultBytes uint64

	// LivenessTimeout is the time without contact after which a worker is
	// marked down; default 3 s.
	LivenessTimeout time.Duration
	// Lease is how long an at-most-once attempt of a worker that is down may
	// still be running; default 30 s, or LivenessTimeout if that is longer.
	Lease time.Duration
	// StartTimeout ends an attempt that its worker has neither started nor
	// finished, if the task sets no limit of its own; default 60 s. A shorter
	// one moves attempts sooner that wait behind others at their worker.
	StartTimeout time.Duration
	// StopTimeout is how long a cleanup task waits for attempts of its job that
	// are being stopped; default 60 s.
	StopTimeout time.Duration
	// TimeoutSlack is added to a task's own timeouts, which the worker
	// enforces; default 5 s.
	TimeoutSlack time.Duration
	// MaxLosses is the number of workers that may go down while they run a task
	// before the task becomes a dead letter: it may be what kills them. Default
	// 5, at most 255.
	MaxLosses int
	// AdmissionRate is the number of sessions per second at which workers
	// return after a failover, at the least; default 1000, half the rate at
	// which sessions are admitted.
	AdmissionRate int
	// UploadTimeout removes a job that an earlier leader began and that is not
	// sealed; default 1 minute.
	UploadTimeout time.Duration
	// KeepJobs, KeepTasks and KeepFor bound the ended jobs in the state;
	// whichever is reached first moves the oldest to history. Default 10,000
	// jobs, 2 million tasks, 7 days. Jobs all of whose tasks completed have
	// limits of their own, because they can neither be retried nor have dead
	// letters: KeepCompleted, default 1 minute or KeepFor if that is shorter,
	// and KeepCompletedTasks, default 250,000, which keeps memory independent
	// of the throughput.
	KeepJobs           int
	KeepTasks          uint64
	KeepFor            time.Duration
	KeepCompleted      time.Duration
	KeepCompletedTasks uint64
	// HistoryAge is how long history keeps a job after its end; 0 = unlimited.
	HistoryAge time.Duration
	// HistoryBusy reports whether history is overloaded; no job leaves the
	// state then. It must not block. nil: never overloaded.
	HistoryBusy func() bool
	// KeepWorkers is how long a worker that is down is remembered; default
	// 24 h.
	KeepWorkers time.Duration
	// KeepIdentities is how long an identity or a join token is remembered after it was
	// revoked or has expired; default 30 days.
	KeepIdentities time.Duration

	// TimeScale scales the default timeouts and the sweep interval. For
	// simulations only.
	TimeScale timescale.Factor
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Defaults sets every zero field that has a default.
func (c *Config) Defaults() {
	if c.ClockAgrees == nil {
		c.ClockAgrees = func() bool { return true }
	}
	orDefault(&c.InFlight, 2)
	orDefault(&c.EntryBytes, 256<<10)
	orDefault(&c.EntryOps, 8192)
	orDefault(&c.InboxReports, 4096)
	orDefault(&c.InboxOthers, 4096)
	orDefault(&c.MaxTasks, 20_000_000)
	orDefault(&c.MaxKeys, 4_000_000)
	orDefault(&c.MaxResults, 100_000)
	orDefault(&c.MaxResultBytes, 64<<20)
	orDefault(&c.LivenessTimeout, c.TimeScale.Scale(3*time.Second))
	orDefault(&c.Lease, max(c.TimeScale.Scale(30*time.Second), c.LivenessTimeout))
	orDefault(&c.StartTimeout, c.TimeScale.Scale(time.Minute))
	orDefault(&c.StopTimeout, c.TimeScale.Scale(time.Minute))
	orDefault(&c.TimeoutSlack, c.TimeScale.Scale(5*time.Second))
	orDefault(&c.AdmissionRate, 1000)
	orDefault(&c.MaxLosses, 5)
	orDefault(&c.UploadTimeout, c.TimeScale.Scale(time.Minute))
	orDefault(&c.KeepJobs, 10_000)
	orDefault(&c.KeepTasks, 2_000_000)
	orDefault(&c.KeepFor, 7*24*time.Hour)
	orDefault(&c.KeepCompleted, min(time.Minute, c.KeepFor))
	orDefault(&c.KeepCompletedTasks, 250_000)
	orDefault(&c.KeepWorkers, 24*time.Hour)
	orDefault(&c.KeepIdentities, 30*24*time.Hour)
	if c.WallClock == nil {
		c.WallClock = time.Now
	}
	if c.CredentialClock == nil {
		c.CredentialClock = c.WallClock
	}
	if c.Zone == nil {
		c.Zone = zoneinfo.Load
	}
	if c.Definite == nil {
		c.Definite = func(error) bool { return false }
	}
	if c.CheckSubmit == nil {
		c.CheckSubmit = func() error { return nil }
	}
	if c.HistoryBusy == nil {
		c.HistoryBusy = func() bool { return false }
	}
	if c.Halt == nil {
		c.Halt = func(error) {}
	}
	if c.NotificationsCommitted == nil {
		c.NotificationsCommitted = func() {}
	}
	if c.Totals == nil {
		c.Totals = NewTotals()
	}
}

// Validate returns all missing and invalid fields, joined.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New("sequencer: "+what))
		}
	}
	check(c.Log != nil && c.Machine != nil && c.Logger != nil, "missing Log, Machine or Logger")
	check(c.Term > 0, "missing Term")
	check(c.NewClusterID != nil, "missing NewClusterID")
	check(c.InFlight > 0 && c.InFlight <= 64, "InFlight must be 1 to 64")
	check(c.EntryBytes >= 64<<10 && c.EntryBytes <= 384<<10, "EntryBytes must be 64 to 384 KiB")
	check(c.EntryOps > 0, "EntryOps must be positive")
	check(c.LivenessTimeout > 0 && c.Lease >= c.LivenessTimeout, "LivenessTimeout must be positive and Lease not below it")
	return errors.Join(errs...)
}
