package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/dtask/dtask/coordinator"
	"github.com/dtask/dtask/internal/program"
)

// settings are the flags.
type settings struct {
	args           []string // of the process
	dev            bool
	autoRejoin     bool
	slots          int
	id             string
	dataDir        string
	listen         string
	http           string
	advertise      string
	peers          []string
	heartbeat      time.Duration
	raftHeartbeat  time.Duration
	taskTimeout    time.Duration
	maxRetries     uint32
	retriesSet     bool
	snapshotBytes  uint64
	logStore       string
	keepFor        time.Duration
	keepJobs       int
	historyAge     string
	historyJobs    uint64
	historyBytes   uint64
	minFree        uint64
	minFreePercent uint64
	submitRate     float64
	submitBurst    int
	deadWebhook    string
	deadCommand    string
	secretFile     string
	logLevel       string
	logFormat      string
}

// run starts what the flags ask for and waits for its end.
func (s *settings) run(ctx context.Context, stdout, stderr io.Writer) error {
	log, err := program.NewLogger(stderr, s.logLevel, s.logFormat)
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
	if err := instrument(&cfg); err != nil {
		return &program.UsageError{Err: err}
	}
	warnOfFiles(cfg.Logger)
	if s.dev {
		return runDev(ctx, s, cfg, stdout)
	}
	if err := cfg.Validate(); err != nil {
		return &program.UsageError{Err: err}
	}
	ctx, stop := program.UntilSignal(ctx, log)
	defer stop()
	return coordinator.Run(ctx, cfg)
}

// filesWanted is how many files and connections a leader may need: one for each
// worker, client and replica, and some of its own.
const filesWanted = 16_384

// warnOfFiles raises the limit of open files as far as it goes, and says so if that
// is not far.
func warnOfFiles(log *slog.Logger) {
	limit, err := program.RaiseFiles()
	switch {
	case err != nil:
		log.Warn("the limit of open files is as it was", "err", err)
	case limit < filesWanted:
		log.Warn("few connections can be open at a time: each worker, client and replica takes one; raise the hard limit of open files",
			"limit", limit, "wanted", filesWanted)
	}
}

// check refuses what does not go together, and fills in what --dev implies.
func (s *settings) check() error {
	switch {
	case s.dev && len(s.peers) > 0:
		return errors.New("--peers: a --dev system is alone; leave one of the two out")
	case !s.dev && s.slots != 0:
		return errors.New("--slots: only a --dev system has a worker; start dtask-worker --slots otherwise")
	case s.slots < 0 || s.slots > 65535:
		return fmt.Errorf("--slots: %d must be 1–65535", s.slots)
	case !s.dev && s.id == "":
		return errors.New("--id: is needed, such as n1; to try dtask out, use --dev")
	case !s.dev && s.dataDir == "":
		return errors.New("--data-dir: is needed; to try dtask out, use --dev")
	case s.taskTimeout < time.Millisecond:
		return errors.New("--task-timeout: must be above 0")
	case s.maxRetries > 1_000_000:
		return errors.New("--max-retries: must be 0–1000000")
	case s.heartbeat < 50*time.Millisecond:
		return errors.New("--heartbeat-interval: must be at least 50ms")
	case s.raftHeartbeat < 50*time.Millisecond:
		return errors.New("--raft-heartbeat: must be at least 50ms")
	case s.keepFor <= 0 || s.keepJobs <= 0:
		return errors.New("--keep-for, --keep-jobs: must be above 0")
	case s.historyJobs < 1 || s.historyBytes < 16<<20:
		return errors.New("--history-jobs, --history-bytes: must be at least 1 job and 16777216 bytes")
	}
	if _, err := parseAge(s.historyAge); err != nil {
		return err
	}
	if s.dev && s.id == "" {
		s.id = "dev"
	}
	return nil
}

func (s *settings) coordinator(log *slog.Logger, peers []coordinator.Peer) coordinator.Config {
	cfg := coordinator.Config{
		ID: s.id, DataDir: s.dataDir, Listen: s.listen, HTTP: s.http, Advertise: s.advertise, Peers: peers,
		Version: version, Logger: log, HeartbeatInterval: s.heartbeat, RaftHeartbeat: s.raftHeartbeat,
		AutoRejoin: s.autoRejoin, Command: commandLine(s.args),
		SnapshotBytes: s.snapshotBytes, LogStore: coordinator.LogStore(s.logStore), TaskTimeout: s.taskTimeout,
		KeepFor: s.keepFor, KeepJobs: s.keepJobs, MinFree: &coordinator.MinFree{Bytes: s.minFree, Percent: s.minFreePercent},
		HistoryJobs: s.historyJobs, HistoryBytes: s.historyBytes,
		SubmitRate: s.submitRate, SubmitBurst: s.submitBurst,
		DeadLetterWebhook: s.deadWebhook, DeadLetterCommand: s.deadCommand, WebhookSecretFile: s.secretFile,
	}
	cfg.HistoryAge, _ = parseAge(s.historyAge) // check has looked at it
	if s.retriesSet {
		cfg.MaxRetries = &s.maxRetries
	}
	return cfg
}

// parseAge reads a duration that may be in days: 90d, 36h, 0.
func parseAge(text string) (time.Duration, error) {
	age, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16)
		age = time.Duration(n) * 24 * time.Hour //nolint:gosec // 16 bits
	}
	if err != nil || age < 0 {
		return 0, fmt.Errorf("--history-age: %q is no duration; write it as 90d or 36h, or 0 for ever", text)
	}
	return age, nil
}

// commandLine writes the command as a shell reads it.
func commandLine(args []string) string {
	words := []string{"dtaskd"}
	for _, a := range args {
		if a == "" || strings.ContainsAny(a, " \t\n'\"\\$`*?;&|<>()[]{}~#!") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}

// parsePeers reads ID=HOST:PORT entries.
func parsePeers(list []string) ([]coordinator.Peer, error) {
	var peers []coordinator.Peer
	seen := make(map[string]bool)
	for _, entry := range list {
		id, address, ok := strings.Cut(strings.TrimSpace(entry), "=")
		if !ok || id == "" || address == "" {
			return nil, fmt.Errorf("--peers: %q is not ID=HOST:PORT", entry)
		}
		if seen[id] || seen[address] {
			return nil, fmt.Errorf("--peers: %q is there twice", entry)
		}
		seen[id], seen[address] = true, true
		peers = append(peers, coordinator.Peer{ID: id, Address: address})
	}
	return peers, nil
}
