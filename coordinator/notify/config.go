package notify

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/scheduler/backoff"
)

// Limits of deliveries.
const (
	maxInFlight      = 8
	requestTimeout   = 10 * time.Second
	commandTimeout   = 30 * time.Second
	maxAge           = 24 * time.Hour // of a notification that is retried
	maxRetryAfter    = 10 * time.Minute
	maxRecordItems   = 1000 // in one call of Recorder
	recordRetryDelay = time.Second
)

// retryPolicy spaces the deliveries of one notification.
var retryPolicy = backoff.Policy{Initial: time.Second, Max: maxRetryAfter, Multiplier: 2, Jitter: true}

// Recorder records outcomes in the log. The sequencer implements it.
type Recorder interface {
	// RecordDelivered removes notifications that were delivered or dropped: after
	// it returns nil, no later leader delivers them. At most 1,000 items per call.
	RecordDelivered(ctx context.Context, items []fsm.Delivery) error
}

// Hooks are the receivers of dead letters, and the key that signs all requests.
type Hooks struct {
	DeadLetterWebhook string // URL; empty = none
	DeadLetterCommand string // path of a program; empty = none
	Secret            Secret // zero = unsigned requests
}

// DeadLetterKinds returns the kinds of notifications of a new dead letter.
func (h Hooks) DeadLetterKinds() []fsm.NotificationKind {
	var kinds []fsm.NotificationKind
	if h.DeadLetterWebhook != "" {
		kinds = append(kinds, fsm.DeadLetterWebhookNotification)
	}
	if h.DeadLetterCommand != "" {
		kinds = append(kinds, fsm.DeadLetterCommandNotification)
	}
	return kinds
}

// Config is the configuration of Run. All fields are required unless their comment
// says otherwise.
type Config struct {
	Machine  *fsm.Machine
	Recorder Recorder
	// Job and DeadLetter return the API's view of a job or a dead letter; nil if it
	// is unknown. They are called with the machine's lock held.
	Job        func(*fsm.State, fsm.JobID) *dtaskv1.Job
	DeadLetter func(*fsm.State, fsm.TaskRef) *dtaskv1.DeadLetter
	// Wake receives a token after notifications were committed. Its size is 1; the
	// sender drops tokens that don't fit.
	Wake    <-chan struct{}
	Hooks   Hooks
	Version string // of the program, for User-Agent
	Logger  *slog.Logger
	Totals  *Totals
	Seed    uint64 // of the jitter of retries
	// Addresses are what webhooks of jobs may reach. Those of Hooks are the operator's
	// and may reach any address.
	Addresses AddressPolicy

	// Wall is the wall clock, for timestamps of requests and the age of
	// notifications. Default: time.Now.
	Wall func() time.Time
	// Dial connects to all receivers. Default: net.Dialer, with Addresses for jobs.
	Dial Dialer
	// Proxy returns the proxy of requests to Hooks. Default: http.ProxyFromEnvironment.
	// Webhooks of jobs use none: it would connect to the addresses that Addresses refuses.
	Proxy func(*http.Request) (*url.URL, error)

	dialJob Dialer
}

// A Dialer connects to HOST:PORT.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

func (c *Config) defaults() {
	if c.Wall == nil {
		c.Wall = time.Now
	}
	if c.Proxy == nil {
		c.Proxy = http.ProxyFromEnvironment
	}
	c.dialJob = c.Dial
	if c.Dial == nil {
		c.Dial, c.dialJob = new(net.Dialer).DialContext, c.Addresses.dial
	}
}

// Totals are counters over all terms of a process. They are safe for concurrent
// use.
type Totals struct {
	Delivered atomic.Uint64 // notifications
	Dropped   atomic.Uint64 // notifications
	Attempts  atomic.Uint64 // deliveries
}
