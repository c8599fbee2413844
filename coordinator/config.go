package coordinator

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"regexp"
	"time"

	"github.com/dtask/dtask/coordinator/api"
	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/internal/loopback"
	"github.com/dtask/dtask/internal/timescale"
	"github.com/dtask/dtask/spec"
)

// Peer is a first member of a cluster.
type Peer struct {
	ID      string
	Address string // HOST:PORT
}

// DefaultMaxConnsPerAddress is the default of Config.MaxConnsPerAddress.
const DefaultMaxConnsPerAddress = 256

// MinFree is the minimum free space of a disk, in bytes and in percent.
type MinFree = raftnode.SpaceLimit

// DefaultMinFree is 256 MiB.
func DefaultMinFree() MinFree { return raftnode.DefaultSpaceLimit() }

// LogStore is the store of the log's entries.
type LogStore = logstore.Kind

// The log stores.
const (
	LogBolt = logstore.Bolt
	LogWAL  = logstore.WAL
)

// Config is what Run needs. A field is required unless its comment gives a default or
// calls it optional.
type Config struct {
	ID      string // server id, never reused in the cluster
	DataDir string // created if it does not exist
	Listen  string // HOST:PORT for gRPC and Raft; port 0 = any
	HTTP    string // HOST:PORT for metrics and health; empty = none
	// HTTPHosts are further names of this machine that requests to HTTP may be for; see
	// telemetry.AllowHosts. The host names of HTTP, Advertise and the certificate, and that
	// of the operating system, need not be among them.
	HTTPHosts []string
	// Advertise is the HOST:PORT that others dial. Default: the address of Listen.
	Advertise string
	// Peers are the first members, this one included; empty = this replica alone.
	Peers []Peer
	// TLSDir has this replica's certificate (tls.crt, tls.key) and the cluster's CA
	// (ca.crt), which are read again when they change. Empty = plaintext: then all
	// addresses must be on loopback.
	TLSDir string
	// MaxConnsPerAddress bounds the open connections of one other machine, or of the network
	// behind one NAT, to Listen; default DefaultMaxConnsPerAddress. Replicas with TLS and
	// this machine have no such limit.
	MaxConnsPerAddress int
	Version            string
	Logger             *slog.Logger

	// Wall is the wall clock. Default: time.Now.
	Wall func() time.Time

	// HeartbeatInterval is how often workers report; default 1 s. A worker is marked
	// down after three missing heartbeats.
	HeartbeatInterval time.Duration
	// RaftHeartbeat is how long a leader may be silent before an election; default
	// 500 ms.
	RaftHeartbeat time.Duration
	// SnapshotBytes is the size of the log between two snapshots, unless the snapshots
	// are larger: then it is their size. Default 64 MiB.
	SnapshotBytes uint64
	// LogStore is the store of the log; default LogBolt. A data directory cannot change
	// its store.
	LogStore LogStore
	// TaskTimeout is the timeout of an attempt for tasks without one; default 1 h.
	TaskTimeout time.Duration
	// StartTimeout is how long a worker may take to start an assigned attempt of a task
	// without a limit; default 1 min. The leader's setting applies.
	StartTimeout time.Duration
	// MaxRetries is the number of retries for tasks without one; nil = 3.
	MaxRetries *uint32
	// KeepFor is how long the replicated state keeps finished jobs that can be retried,
	// with their dead letters; default 7 days. KeepJobs is how many finished jobs it
	// keeps; default 10,000. Completed jobs leave it within a minute. Jobs that left
	// the state are in the history.
	KeepFor  time.Duration
	KeepJobs int
	// HistoryAge, HistoryJobs and HistoryBytes limit the history by age, number and
	// bytes on disk. 0 = unlimited age, the defaults of history.Config. The leader's
	// HistoryAge applies.
	HistoryAge                time.Duration
	HistoryJobs, HistoryBytes uint64
	// MinFree is the free space of DataDir's disk below which new jobs are refused.
	// Below half of it this replica transfers leadership. nil = DefaultMinFree; zero
	// numbers = no limit.
	MinFree *MinFree
	// SubmitRate limits the jobs that one owner may submit per second; 0 = unlimited.
	// SubmitBurst is how many they may submit at once; default 10 × SubmitRate, at
	// least 1. The leader's settings apply: they must match on all replicas.
	SubmitRate  float64
	SubmitBurst int

	// DeadLetterWebhook is a URL that receives each new dead letter, DeadLetterCommand
	// the path of a program that does; empty = none. The leader's settings apply: they
	// must match on all replicas.
	DeadLetterWebhook, DeadLetterCommand string
	// WebhookSecretFile has the key that signs webhooks; empty = unsigned. Run reads it
	// once.
	WebhookSecretFile string
	// WebhookAllow are private addresses that webhooks of jobs may reach beside public
	// ones. Loopback addresses are added if Listen is one: then only this machine can
	// submit jobs. The leader's setting applies: it must match on all replicas.
	WebhookAllow []netip.Prefix
	// BackupCommand is the absolute path of a program that this replica runs after each
	// backup of the schedule that it has written; empty = none.
	BackupCommand string
	// AutoRejoin lets a replica whose data directory is lost or damaged rejoin under a
	// new server id, which the cluster chooses.
	AutoRejoin bool
	// Replace is the server id of a lost member whose place this replica takes when the
	// cluster adds it; empty if none. A replica that has joined before ignores it.
	Replace string
	// UpgradeAfter is how long all members must support a feature level before the leader
	// raises the cluster to it; 0 = at once. The leader's setting applies.
	UpgradeAfter time.Duration
	// Audit is what happens when the audit log can't be written; AuditOff disables the log.
	// Default: AuditBestEffort with TLSDir, else AuditOff. AuditReads records calls that
	// only read, too.
	Audit      AuditMode
	AuditReads bool
	// AuditFileBytes is the size from which on a file of the audit log is followed by
	// another one, at least 64 KiB; AuditFiles is how many are kept, at least 2. 0 = the
	// defaults.
	AuditFileBytes int64
	AuditFiles     int
	// Command is the command line of this process, for messages. Optional.
	Command string
	// Settings are the values of the flags by their names, without secrets, and LogTail
	// returns the last lines of the log. Both are for debug bundles, and optional. LogTail is
	// called from many goroutines.
	Settings map[string]string
	LogTail  func() []byte

	// Summary is how often a summary is logged while there is work; default 5 s.
	Summary time.Duration
	// TrailingLogs is how many entries stay behind a snapshot; 0 = the default of
	// raftnode.Config.
	TrailingLogs uint64
	// TimeScale multiplies the periods and timeouts of this replica. 0 means 1. For
	// simulations.
	TimeScale timescale.Factor
	// Seams are set by simulations and fault switches only.
	Seams Seams
	// Started is called with the addresses once the replica listens. Optional.
	Started func(listen, http string)
	// Alive is called in each AliveInterval in which the replica makes progress or has
	// nothing to do; default 1 s. It is not called while the state machine hangs. A replica
	// that starts, or has no leader, is alive. Optional.
	Alive         func()
	AliveInterval time.Duration
}

func (c *Config) defaults() {
	if c.Wall == nil {
		c.Wall = time.Now
	}
	c.MaxConnsPerAddress = cmp.Or(c.MaxConnsPerAddress, DefaultMaxConnsPerAddress)
	if c.HeartbeatInterval == 0 {
		c.HeartbeatInterval = c.TimeScale.Scale(time.Second)
	}
	if c.Summary == 0 {
		c.Summary = c.TimeScale.Scale(5 * time.Second)
	}
	if c.Audit == "" {
		c.Audit = AuditOff
		if c.TLSDir != "" {
			c.Audit = AuditBestEffort
		}
	}
	if c.Started == nil {
		c.Started = func(string, string) {}
	}
	if c.AliveInterval == 0 {
		c.AliveInterval = c.TimeScale.Scale(time.Second)
	}
	c.Seams.defaults()
}

// Validate returns all invalid and missing settings, joined, by the names of their
// flags. It reads the files that the settings name.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	const nameRule = "must be 1 to 63 letters, digits, dots, - and _"
	check(nameRE.MatchString(c.ID), "invalid --id %q: "+nameRule, c.ID)
	check(c.DataDir != "", "--data-dir is required")
	errs = append(errs, c.checkAddress("--listen", c.Listen), c.checkAddress("--http", c.HTTP),
		c.checkAddress("--advertise", c.Advertise), c.checkCertificate())
	check(c.Advertise != "" || !isUnspecified(c.Listen), "--advertise is required with --listen %s: others can't dial that address", c.Listen)
	check(!isUnspecified(c.Advertise), "invalid --advertise %q: must be an address that others can dial", c.Advertise)
	self := len(c.Peers) == 0
	for _, p := range c.Peers {
		check(nameRE.MatchString(p.ID), "invalid --peers: id %q "+nameRule, p.ID)
		errs = append(errs, c.checkAddress("--peers", p.Address))
		self = self || p.ID == c.ID
	}
	check(self, "invalid --peers: must include this replica, %s", c.ID)
	if err := c.LogStore.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("invalid --log-store: %w", err))
	}
	check(c.MinFree == nil || c.MinFree.Percent <= 100,
		"invalid --min-free-percent: must be 0 to 100")
	check(c.HeartbeatInterval >= 0 && c.HeartbeatInterval <= time.Minute,
		"invalid --heartbeat-interval %s: must be at most 1m", c.HeartbeatInterval)
	check(c.SubmitRate >= 0 && c.SubmitRate <= api.MaxSubmitRate,
		"invalid --submit-rate %v: must be 0 to %d jobs per second", c.SubmitRate, api.MaxSubmitRate)
	check(c.MaxConnsPerAddress >= 0, "invalid --max-connections-per-address %d: must be 1 or more", c.MaxConnsPerAddress)
	for _, name := range c.HTTPHosts {
		check(hostRE.MatchString(name), "invalid --http-hosts %q: must be host names without a port", name)
	}
	check(c.UpgradeAfter >= 0, "invalid --upgrade-after %s: must be 0 or more", c.UpgradeAfter)
	check(c.AliveInterval >= 0, "invalid AliveInterval %s: must be 0 or more", c.AliveInterval)
	check(c.SubmitBurst >= 0, "invalid --submit-burst %d: must be 0 or more", c.SubmitBurst)
	check(c.SubmitBurst == 0 || c.SubmitRate != 0, "--submit-burst requires --submit-rate")
	_, err := c.notificationHooks()
	errs = append(errs, err)
	if c.BackupCommand != "" {
		if err := checkExecutable(c.BackupCommand); err != nil {
			errs = append(errs, fmt.Errorf("--backup-command: %w", err))
		}
	}
	errs = append(errs, c.checkAudit()...)
	return errors.Join(errs...)
}

// checkAddress checks the form of an address, and refuses one that other machines can
// reach unless TLS is on.
func (c *Config) checkAddress(flag, address string) error {
	if address == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("invalid %s %q: must be HOST:PORT", flag, address)
	}
	if c.TLSDir == "" && !loopback.Is(address) {
		return fmt.Errorf("invalid %s %q: must be a loopback address such as 127.0.0.1, because other machines require TLS: "+
			"create certificates with dtaskctl tls init and dtaskctl tls issue, and use --tls-dir", flag, address)
	}
	return nil
}

// isUnspecified reports whether an address is that of all interfaces.
func isUnspecified(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "" || ip != nil && ip.IsUnspecified())
}

// servers returns the peers as members.
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

// hostRE matches a host name.
var hostRE = regexp.MustCompile(`^[a-zA-Z0-9_]([a-zA-Z0-9._-]{0,251}[a-zA-Z0-9_])?$`)

// nameRE matches a server id.
var nameRE = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,63}$`)
