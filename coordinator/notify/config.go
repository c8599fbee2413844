package notify

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/scheduler/backoff"
)

// Bounds of deliveries.
const (
	maxOnTheirWay  = 8
	requestTimeout = 10 * time.Second
	commandTimeout = 30 * time.Second
	giveUpAfter    = 24 * time.Hour // since what the notice is of
	maxRetryAfter  = 10 * time.Minute
	maxRecorded    = 1000 // outcomes in one call of Recorder
	recordAgain    = time.Second
)

// waits are between deliveries of one notice.
var waits = backoff.Policy{Initial: time.Second, Max: maxRetryAfter, Multiplier: 2, Jitter: true}

// Recorder writes outcomes into the log. The sequencer is one.
type Recorder interface {
	// RecordDelivered records that notices were delivered or given up: after it returns
	// nil, no later leader tells them. At most 1,000 items a call.
	RecordDelivered(ctx context.Context, items []fsm.Delivery) error
}

// Hooks are who is told of dead letters, as this replica is set.
type Hooks struct {
	LetterWebhook string // URL; empty = none
	LetterCommand string // path of a program; empty = none
	Secret        Secret // signs all requests; zero = they are not signed
}

// Letters are the notices that a new dead letter gets.
func (h Hooks) Letters() []fsm.NotificationKind {
	var kinds []fsm.NotificationKind
	if h.LetterWebhook != "" {
		kinds = append(kinds, fsm.DeadLetterWebhookNotification)
	}
	if h.LetterCommand != "" {
		kinds = append(kinds, fsm.DeadLetterCommandNotification)
	}
	return kinds
}

// Config is what Run needs. All is required unless its comment says otherwise.
type Config struct {
	Machine  *fsm.Machine
	Recorder Recorder
	// Job and DeadLetter return what callers of the API see of a job or a dead
	// letter; nil if it is unknown. They are called with the machine's lock held.
	Job        func(*fsm.State, fsm.JobID) *dtaskv1.Job
	DeadLetter func(*fsm.State, fsm.TaskRef) *dtaskv1.DeadLetter
	// Wake has a token after notices were committed. Size 1; the sender drops
	// what does not fit.
	Wake    <-chan struct{}
	Hooks   Hooks
	Version string // of the program: User-Agent
	Logger  *slog.Logger
	Totals  *Totals
	Seed    uint64 // spreads retries

	// Wall is the wall clock: it stamps requests, and notices are given up by it.
	// nil: time.Now.
	Wall func() time.Time
	// Dial connects to receivers. nil: by net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (c *Config) defaults() {
	if c.Wall == nil {
		c.Wall = time.Now
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
}

// Totals are counters over all terms of a process. Safe for concurrent use.
type Totals struct {
	Delivered atomic.Uint64 // notices
	Failed    atomic.Uint64 // notices that were given up
	Attempts  atomic.Uint64 // deliveries that were tried
}
