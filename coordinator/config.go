package coordinator

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/dtask/dtask/coordinator/api"
	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/internal/timescale"
	"github.com/dtask/dtask/spec"
)

// Peer is a first member of a cluster.
type Peer struct {
	ID      string
	Address string // HOST:PORT
}

// MinFree is how much room there must be on a disk: bytes, and a percentage.
type MinFree = raftnode.SpaceLimit

// DefaultMinFree is 256 MiB.
func DefaultMinFree() MinFree { return raftnode.DefaultSpaceLimit() }

// LogStore says where the entries of the log are.
type LogStore = logstore.Kind

// The stores of the log.
const (
	LogBolt = logstore.Bolt
	LogWAL  = logstore.WAL
)

// Config is what Run needs. All is required unless its comment says otherwise.
type Config struct {
	ID      string // server id, unique in the cluster for ever
	DataDir string // created if it is not there
	Listen  string // HOST:PORT for gRPC and Raft; port 0 = any
	HTTP    string // HOST:PORT for metrics and health; empty = none
	// Advertise is the HOST:PORT that others dial. Default: what Listen became.
	Advertise string
	// Peers are the first members, this one included; empty: alone.
	Peers   []Peer
	Version string
	Logger  *slog.Logger

	// Wall is the wall clock. Default: time.Now. Clock faults are tested with it.
	Wall func() time.Time

	HeartbeatInterval time.Duration // of workers; default 1 s; they are given up after three
	RaftHeartbeat     time.Duration // default 500 ms; see raftnode.Config
	SnapshotBytes     uint64        // of log between snapshots; default 64 MiB
	LogStore          LogStore      // where the log is; default LogBolt; a folder cannot change it
	TaskTimeout       time.Duration // of an attempt, for tasks that name none; default 60 minutes
	MaxRetries        *uint32       // for tasks that do not say; nil = 3
	// KeepFor is how long the replicated state keeps ended jobs that can be retried, and
	// their dead letters, and KeepJobs how many ended jobs it keeps; default 7 days,
	// 10,000. Jobs all of whose tasks completed leave it after a minute at most. What
	// left is in the history.
	KeepFor  time.Duration
	KeepJobs int
	// HistoryAge, HistoryJobs and HistoryBytes bound the history: for how long after
	// their end, how many, and in how many bytes on disk jobs are kept. 0 = for ever, the
	// defaults of history.Config. The leader's HistoryAge counts.
	HistoryAge                time.Duration
	HistoryJobs, HistoryBytes uint64
	// MinFree is the room that the disk of DataDir must have for new jobs to be
	// taken; with less than half of it this replica does not lead if another
	// can. nil = DefaultMinFree; zero numbers ask for none.
	MinFree *MinFree
	// SubmitRate is how many jobs one owner may submit in a second; 0 = as many
	// as he likes. SubmitBurst is how many at once after a time of rest; default
	// 10 × SubmitRate, at least 1. The leader's settings count: they should be the
	// same at all replicas.
	SubmitRate  float64
	SubmitBurst int

	// DeadLetterWebhook is a URL that is told of each new dead letter, and
	// DeadLetterCommand the path of a program that is; empty = none. The leader's
	// settings count: they should be the same at all replicas.
	DeadLetterWebhook, DeadLetterCommand string
	// WebhookSecretFile has the key that signs webhooks; empty = they are not
	// signed. It is read when Run begins.
	WebhookSecretFile string
	// AutoRejoin lets a replica whose folder was lost or is damaged come back under a
	// new server id, which the cluster gives it.
	AutoRejoin bool
	// Command is the command line of this process, for messages. Optional.
	Command string

	// Summary is how often a line is logged while there is work; default 5 s.
	Summary time.Duration
	// TrailingLogs is how many entries stay behind a snapshot; 0 = the default of
	// raftnode.Config.
	TrailingLogs uint64
	// TimeScale multiplies the periods and timeouts of this replica. 0 means 1. For
	// simulations.
	TimeScale timescale.Factor
	// Seams are set by simulations and fault switches only.
	Seams Seams
	// Started, if set, is told the addresses once the replica listens.
	Started func(listen, http string)
}

func (c *Config) defaults() {
	if c.Wall == nil {
		c.Wall = time.Now
	}
	if c.HeartbeatInterval == 0 {
		c.HeartbeatInterval = c.TimeScale.Scale(time.Second)
	}
	if c.Summary == 0 {
		c.Summary = c.TimeScale.Scale(5 * time.Second)
	}
	if c.Started == nil {
		c.Started = func(string, string) {}
	}
	c.Seams.defaults()
}

// Validate gives all that is missing or out of range, with the names of the
// flags, joined. It looks at the files that the settings name.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(nameOK(c.ID), "--id: %q must be 1–63 letters, digits, - _ and dots", c.ID)
	check(c.DataDir != "", "--data-dir: is needed")
	errs = append(errs, loopback("--listen", c.Listen), loopback("--http", c.HTTP), loopback("--advertise", c.Advertise))
	self := len(c.Peers) == 0
	for _, p := range c.Peers {
		check(nameOK(p.ID), "--peers: id %q must be 1–63 letters, digits, - _ and dots", p.ID)
		errs = append(errs, loopback("--peers", p.Address))
		self = self || p.ID == c.ID
	}
	check(self, "--peers: must name this replica, %s, too", c.ID)
	if err := c.LogStore.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--log-store: %w", err))
	}
	check(c.MinFree == nil || c.MinFree.Percent <= 100, "--min-free-percent: must be 0–100")
	check(c.HeartbeatInterval >= 0 && c.HeartbeatInterval <= time.Minute, "--heartbeat-interval: must be at most 1m")
	check(c.SubmitRate >= 0 && c.SubmitRate <= api.MaxSubmitRate, "--submit-rate: must be 0–%d jobs a second", api.MaxSubmitRate)
	check(c.SubmitBurst >= 0, "--submit-burst: must not be negative")
	check(c.SubmitBurst == 0 || c.SubmitRate != 0, "--submit-burst: means nothing without --submit-rate; give both")
	_, err := c.notificationHooks()
	errs = append(errs, err)
	return errors.Join(errs...)
}

// loopback refuses an address that other machines can reach: there, everything
// must be encrypted and everybody known, and this version does neither.
func loopback(flag, address string) error {
	if address == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%s: %q is not HOST:PORT", flag, address)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("%s: %s can be reached from other machines, and without TLS and tokens dtask serves loopback addresses only; use 127.0.0.1", flag, address)
	}
	return nil
}

// servers are the peers as raftnode wants them.
func (c *Config) servers() []raftnode.Server {
	var list []raftnode.Server
	for _, p := range c.Peers {
		list = append(list, raftnode.Server{ID: p.ID, Address: p.Address, Voter: true})
	}
	return list
}

// livenessTimeout is the silence after which a worker is marked down.
func (c *Config) livenessTimeout() time.Duration { return 3 * c.HeartbeatInterval }

func (c *Config) taskDefaults() spec.TaskDefaults {
	return spec.TaskDefaults{Timeout: c.TaskTimeout, Retries: c.MaxRetries}
}

func nameOK(s string) bool {
	if s == "" || len(s) > 63 {
		return false
	}
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.' {
			return false
		}
	}
	return true
}
