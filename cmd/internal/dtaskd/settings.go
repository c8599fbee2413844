package dtaskd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/dtask/dtask/coordinator"
	"github.com/dtask/dtask/internal/buildinfo"
	"github.com/dtask/dtask/internal/config"
	"github.com/dtask/dtask/internal/program"
)

// settings are the values of the flags.
type settings struct {
	args           []string // of the process
	dev            bool
	autoRejoin     bool
	replace        string
	audit          string
	auditReads     bool
	auditFileBytes int64
	auditFiles     int
	slots          int
	slotsSet       bool
	id             string
	dataDir        string
	listen         string
	http           string
	httpHosts      []string
	maxConns       int
	advertise      string
	tlsDir         string
	peers          []string
	heartbeat      time.Duration
	raftHeartbeat  time.Duration
	taskTimeout    time.Duration
	startTimeout   time.Duration
	maxRetries     uint32
	retriesSet     bool
	snapshotBytes  uint64
	logStore       string
	keepFor        time.Duration
	keepJobs       int
	historyAge     string
	history        time.Duration // of historyAge
	historyJobs    uint64
	historyBytes   uint64
	minFree        uint64
	minFreePercent uint64
	submitRate     float64
	submitBurst    int
	deadWebhook    string
	deadCommand    string
	secretFile     string
	backupCommand  string
	upgradeAfter   time.Duration
	webhookAllow   []string
	webhookRanges  []netip.Prefix // of webhookAllow
	logLevel       string
	logFormat      string
	tail           *program.LogTail // set by logger
}

// run validates the settings and runs what they describe.
func (s *settings) run(ctx context.Context, flags *pflag.FlagSet, stdout, stderr io.Writer) error {
	log, err := s.logger(stderr)
	if err != nil {
		return &program.UsageError{Err: err}
	}
	peers, err := parsePeers(s.peers)
	if err != nil {
		return &program.UsageError{Err: err}
	}
	if err := s.check(); err != nil {
		return &program.UsageError{Err: err}
	}
	cfg := s.coordinator(log.With("replica", s.id), peers)
	cfg.Settings = config.Redacted(flags)
	if err := instrument(&cfg); err != nil {
		return &program.UsageError{Err: err}
	}
	raiseFileLimit(cfg.Logger)
	if s.dev {
		// A complete line would be several times as wide as the user's terminal.
		return runDev(ctx, s, cfg, stdout, func() { summarize(ctx, log, config.ChangedValues(flags)) })
	}
	if err := cfg.Validate(); err != nil {
		return &program.UsageError{Err: err}
	}
	summarize(ctx, log, config.Values(flags))
	ctx, stop := program.UntilSignal(ctx, log)
	defer stop()
	return runNotifying(ctx, cfg)
}

// logTailBytes is how much of the log is kept in memory for debug bundles.
const logTailBytes = 1 << 20

// logger makes the logger, whose last lines are kept.
func (s *settings) logger(stderr io.Writer) (*slog.Logger, error) {
	s.tail = program.NewLogTail(stderr, logTailBytes)
	return program.NewLogger(s.tail, s.logLevel, s.logFormat)
}

// summarize logs the version and settings in one line.
func summarize(ctx context.Context, log *slog.Logger, settings []any) {
	log.InfoContext(ctx, "configuration", append([]any{"version", buildinfo.Version()}, settings...)...)
}

// filesWanted is the number of open files that a large cluster needs: one for each
// connection of a worker, client or replica, and the leader's own.
const filesWanted = 16_384

// raiseFileLimit raises the limit of open files as far as allowed, and warns if that is
// not enough.
func raiseFileLimit(log *slog.Logger) {
	limit, err := program.RaiseFiles()
	switch {
	case err != nil:
		log.Warn("limit of open files not raised", "err", err)
	case limit < filesWanted:
		log.Warn("hard limit of open files is low: each worker, client and replica needs one",
			"limit", limit, "wanted", filesWanted)
	}
}

// check returns all invalid settings and combinations, joined, and fills in what --dev
// implies.
func (s *settings) check() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	age, err := parseAge(s.historyAge)
	errs = append(errs, err)
	s.history = age
	ranges, err := parseRanges(s.webhookAllow)
	errs = append(errs, err)
	s.webhookRanges = ranges
	check(!s.dev || len(s.peers) == 0, "--dev and --peers are mutually exclusive")
	check(!s.dev || s.tlsDir == "", "--dev and --tls-dir are mutually exclusive")
	check(s.dev || s.slots == 0, "--slots requires --dev; otherwise use dtask-worker --slots")
	check(s.slots >= 0 && s.slots <= 65535 && (s.slots > 0 || !s.slotsSet), "invalid --slots %d: must be 1 to 65535", s.slots)
	check(s.dev || s.id != "", "--id is required, such as n1; to try dtask, use --dev")
	check(s.dev || s.dataDir != "", "--data-dir is required; to try dtask, use --dev")
	check(s.taskTimeout >= time.Millisecond, "invalid --task-timeout %s: must be at least 1ms", s.taskTimeout)
	check(s.startTimeout >= time.Second, "invalid --start-timeout %s: must be at least 1s", s.startTimeout)
	check(s.maxRetries <= 1_000_000, "invalid --max-retries %d: must be 0 to 1000000", s.maxRetries)
	check(s.heartbeat >= 50*time.Millisecond, "invalid --heartbeat-interval %s: must be at least 50ms", s.heartbeat)
	check(s.raftHeartbeat >= 50*time.Millisecond, "invalid --raft-heartbeat %s: must be at least 50ms", s.raftHeartbeat)
	check(s.keepFor > 0, "invalid --keep-for %s: must be above 0", s.keepFor)
	check(s.maxConns > 0, "invalid --max-connections-per-address %d: must be 1 or more", s.maxConns)
	check(s.keepJobs > 0, "invalid --keep-jobs %d: must be above 0", s.keepJobs)
	check(s.historyJobs > 0, "invalid --history-jobs 0: must be 1 or more")
	check(s.historyBytes >= 16<<20, "invalid --history-bytes %d: must be at least 16777216", s.historyBytes)
	s.id = cmp.Or(s.id, "dev")
	return errors.Join(errs...)
}

func (s *settings) coordinator(log *slog.Logger, peers []coordinator.Peer) coordinator.Config {
	cfg := coordinator.Config{
		ID: s.id, DataDir: s.dataDir, Listen: s.listen, HTTP: s.http, HTTPHosts: s.httpHosts, Advertise: s.advertise, Peers: peers, TLSDir: s.tlsDir,
		MaxConnsPerAddress: s.maxConns,
		Version:            buildinfo.Version(), Logger: log, HeartbeatInterval: s.heartbeat, RaftHeartbeat: s.raftHeartbeat,
		AutoRejoin: s.autoRejoin, Replace: s.replace, UpgradeAfter: s.upgradeAfter, Command: commandLine(s.args),
		SnapshotBytes: s.snapshotBytes, LogStore: coordinator.LogStore(s.logStore), TaskTimeout: s.taskTimeout, StartTimeout: s.startTimeout,
		KeepFor: s.keepFor, KeepJobs: s.keepJobs,
		MinFree:    &coordinator.MinFree{Bytes: s.minFree, Percent: s.minFreePercent},
		HistoryAge: s.history, HistoryJobs: s.historyJobs, HistoryBytes: s.historyBytes,
		SubmitRate: s.submitRate, SubmitBurst: s.submitBurst,
		DeadLetterWebhook: s.deadWebhook, DeadLetterCommand: s.deadCommand, WebhookSecretFile: s.secretFile,
		WebhookAllow: s.webhookRanges, BackupCommand: s.backupCommand,
		Audit: coordinator.AuditMode(s.audit), AuditReads: s.auditReads, AuditFileBytes: s.auditFileBytes, AuditFiles: s.auditFiles,
	}
	if s.tail != nil {
		cfg.LogTail = s.tail.Bytes
	}
	if s.retriesSet {
		cfg.MaxRetries = &s.maxRetries
	}
	return cfg
}

// parseAge parses a duration that may be in days: 90d, 36h, 0.
func parseAge(text string) (time.Duration, error) {
	age, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16)
		age = time.Duration(n) * 24 * time.Hour //nolint:gosec // 16 bits
	}
	if err != nil || age < 0 {
		return 0, fmt.Errorf("invalid --history-age %q: must be a duration such as 90d or 36h, or 0", text)
	}
	return age, nil
}

// parseRanges parses the values of --webhook-allow. It returns all errors, joined.
func parseRanges(list []string) ([]netip.Prefix, error) {
	var ranges []netip.Prefix
	var errs []error
	for _, text := range list {
		r, err := netip.ParsePrefix(strings.TrimSpace(text))
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("invalid --webhook-allow %q: must be a CIDR such as 10.1.0.0/16 or fd00:1::/64", text))
		case r.Addr().Is4In6():
			errs = append(errs, fmt.Errorf("invalid --webhook-allow %q: write the IPv4 range, such as 10.1.0.0/16", text))
		case r != r.Masked():
			errs = append(errs, fmt.Errorf("invalid --webhook-allow %q: has address bits beyond the prefix; use %s or %s/%d",
				text, r.Masked(), r.Addr(), r.Addr().BitLen()))
		}
		ranges = append(ranges, r)
	}
	return ranges, errors.Join(errs...)
}

// commandLine quotes the command for a shell.
func commandLine(args []string) string {
	words := []string{"dtaskd"}
	for _, a := range args {
		words = append(words, quoteWord(a))
	}
	return strings.Join(words, " ")
}

// quoteWord quotes a word for a shell, if it needs that.
func quoteWord(word string) string {
	if word != "" && !strings.ContainsAny(word, " \t\n'\"\\$`*?;&|<>()[]{}~#!") {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// parsePeers parses ID=HOST:PORT entries.
func parsePeers(list []string) ([]coordinator.Peer, error) {
	var peers []coordinator.Peer
	seen := make(map[string]bool)
	for _, entry := range list {
		id, address, ok := strings.Cut(strings.TrimSpace(entry), "=")
		if !ok || id == "" || address == "" {
			return nil, fmt.Errorf("invalid --peers entry %q: must be ID=HOST:PORT", entry)
		}
		if seen[id] || seen[address] {
			return nil, fmt.Errorf("invalid --peers: duplicate %q", entry)
		}
		seen[id], seen[address] = true, true
		peers = append(peers, coordinator.Peer{ID: id, Address: address})
	}
	return peers, nil
}
