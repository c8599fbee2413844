package sequencer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/dtask/dtask/fsm"
	testpace "github.com/dtask/dtask/internal/pace"
)

// Log is where entries go. coordinator gives raftnode's node.
type Log interface {
	// Propose hands over an entry and returns at once; data must not change
	// afterwards. Proposals are appended and applied in the order of the calls.
	Propose(data []byte) Proposal
}

// Proposal is an entry on its way.
type Proposal interface {
	// Wait gives the machine's answer once the entry is committed and applied
	// here. If definite, err says that it never will be; otherwise its fate is
	// unknown.
	Wait() (response any, index uint64, err error)
}

// Config is what a Sequencer needs. Zero limits mean the defaults.
type Config struct {
	ServerID string
	Instance string // of this replica's data folder
	// Members are instances of other members that are not recorded yet. They go
	// into the first entry: nothing is acknowledged before they are known.
	Members []fsm.Replica
	Term    uint64
	Log     Log
	Machine *fsm.Machine
	Codec   fsm.Codec
	Logger  *slog.Logger
	Totals  *Totals // counters and distributions over all terms

	// Definite reports whether an error of Proposal.Wait says that the entry
	// was never proposed. nil: none is.
	Definite func(error) bool
	// Wall is the wall clock: it stamps entries and decides when a retry is
	// due. Time-outs use the monotonic clock. nil: time.Now.
	Wall func() time.Time
	// NewClusterID makes the name of a new cluster, 32 hexadecimal digits.
	NewClusterID func() string
	// Halt is called once if the replicated state differs from the view that it
	// was checked against: this replica's memory is damaged, it must stop.
	Halt func(error)
	// Refuse says why no new job is begun at the moment, such as for want of
	// disk space; nil if one may be. Whatever is under way goes on, and a key
	// that is known is answered. It must not block. nil: jobs always begin.
	Refuse func() error
	// Letters are the notices that a new dead letter gets, as this replica is
	// set: none, LetterWebhookNotice, LetterCommandNotice or both.
	Letters []fsm.NoticeKind
	// Noticed is called once notices were committed. It must not block. nil:
	// nobody waits for them.
	Noticed func()
	// ClockAgrees tells whether the wall clock is right as far as is known: while
	// it is not, nothing is forgotten because of its age. Default: always. Called
	// from the sequencer's goroutine; it must not wait.
	ClockAgrees func() bool
	// Seed decides between equally loaded workers.
	Seed uint64

	// InFlight is how many entries are on their way at a time; default 2.
	// More hides the latency of the log, and makes entries smaller.
	InFlight int
	// EntryBytes closes an entry; default 256 KiB. Raft's limits count entries.
	EntryBytes int
	// EntryOps closes an entry; default 8192.
	EntryOps int
	// InboxReports, InboxOthers bound what waits; default 4096 messages,
	// 4096 requests.
	InboxReports, InboxOthers int
	// MaxTasks refuses new jobs above this number of tasks held in memory;
	// default 20 million.
	MaxTasks uint64
	// MaxKeys refuses new jobs above this number of remembered idempotency
	// keys; default 4 million.
	MaxKeys int
	// MaxResults and MaxResultBytes bound the remembered results of pure tasks
	// (2–1,048,576 and up to 512 MiB); default 100,000 and 64 MiB. Those that
	// expire first make room for new ones.
	MaxResults     int
	MaxResultBytes uint64

	// Silence is how long a worker may say nothing; default 3 s.
	Silence time.Duration
	// Lease is how long an at-most-once attempt of a lost worker may still be
	// running; default 30 s, or Silence if that is longer.
	Lease time.Duration
	// StartTimeout puts an attempt back that its worker has neither begun nor
	// ended; default 60 s.
	StartTimeout time.Duration
	// TimeoutSlack is what the worker gets on top of a task's own time-outs,
	// which it enforces itself; default 5 s.
	TimeoutSlack time.Duration
	// MaxLosses sends a task to the dead letters when so many workers were lost
	// while it ran: it may be what kills them; default 5, at most 255.
	MaxLosses int
	// AdmissionRate is at how many sessions a second workers surely come back
	// after a failover; default 1000, half of what sessions are admitted at.
	AdmissionRate int
	// UploadTimeout removes a job that was begun under an earlier leader and
	// not sealed; default 1 minute.
	UploadTimeout time.Duration
	// KeepJobs, KeepTasks and KeepFor bound what the state keeps of ended jobs before
	// they leave for history; default 10,000 jobs, 2 million tasks, 7 days. Whatever
	// comes first. KeepDone is KeepFor for jobs all of whose tasks have
	// completed: nothing can be retried, or looked up in the dead letters. Default 1
	// minute, or KeepFor if that is shorter. KeepDoneTasks bounds their tasks, so that memory
	// does not follow the rate of work; default 250,000.
	KeepJobs      int
	KeepTasks     uint64
	KeepFor       time.Duration
	KeepDone      time.Duration
	KeepDoneTasks uint64
	// HistoryAge is for how long history keeps jobs, from their end; 0 = for ever.
	HistoryAge time.Duration
	// HistoryBusy reports that history cannot take more at the moment: nothing leaves
	// the state then. It must not block. nil: it always can.
	HistoryBusy func() bool
	// KeepWorkers is how long a worker that is down is remembered; default 24 h.
	KeepWorkers time.Duration

	// Pace scales the default time-outs and how often all is looked at. For
	// simulations only.
	Pace testpace.Pace
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Defaults fills in what is not set.
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
	orDefault(&c.Silence, c.Pace.Of(3*time.Second))
	orDefault(&c.Lease, max(c.Pace.Of(30*time.Second), c.Silence))
	orDefault(&c.StartTimeout, c.Pace.Of(time.Minute))
	orDefault(&c.TimeoutSlack, c.Pace.Of(5*time.Second))
	orDefault(&c.AdmissionRate, 1000)
	orDefault(&c.MaxLosses, 5)
	orDefault(&c.UploadTimeout, c.Pace.Of(time.Minute))
	orDefault(&c.KeepJobs, 10_000)
	orDefault(&c.KeepTasks, 2_000_000)
	orDefault(&c.KeepFor, 7*24*time.Hour)
	orDefault(&c.KeepDone, min(time.Minute, c.KeepFor))
	orDefault(&c.KeepDoneTasks, 250_000)
	orDefault(&c.KeepWorkers, 24*time.Hour)
	if c.Wall == nil {
		c.Wall = time.Now
	}
	if c.Definite == nil {
		c.Definite = func(error) bool { return false }
	}
	if c.Refuse == nil {
		c.Refuse = func() error { return nil }
	}
	if c.HistoryBusy == nil {
		c.HistoryBusy = func() bool { return false }
	}
	if c.Halt == nil {
		c.Halt = func(error) {}
	}
	if c.Noticed == nil {
		c.Noticed = func() {}
	}
	if c.Totals == nil {
		c.Totals = NewTotals()
	}
}

// Validate gives all that is missing or out of range, joined.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New("sequencer: "+what))
		}
	}
	check(c.Log != nil && c.Machine != nil && c.Codec != nil && c.Logger != nil, "Log, Machine, Codec and Logger are needed")
	check(c.Term > 0, "Term is needed")
	check(c.NewClusterID != nil, "NewClusterID is needed")
	check(c.InFlight > 0 && c.InFlight <= 64, "InFlight must be 1 to 64")
	check(c.EntryBytes >= 64<<10 && c.EntryBytes <= 384<<10, "EntryBytes must be 64 to 384 KiB")
	check(c.EntryOps > 0, "EntryOps must be above 0")
	check(c.Silence > 0 && c.Lease >= c.Silence, "Lease must be at least Silence, and both above 0")
	return errors.Join(errs...)
}

// cause is the reason why a context ended, as an error of this package's
// callers.
func cause(ctx context.Context) error { return context.Cause(ctx) }
