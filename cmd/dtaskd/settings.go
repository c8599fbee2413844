package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/dtask/dtask/coordinator"
	"github.com/dtask/dtask/internal/program"
)

// settings are the flags.
type settings struct {
	dev            bool
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
	keepFor        time.Duration
	keepJobs       int
	minFree        uint64
	minFreePercent uint64
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
		SnapshotBytes: s.snapshotBytes, TaskTimeout: s.taskTimeout,
		KeepFor: s.keepFor, KeepJobs: s.keepJobs, MinFree: &coordinator.MinFree{Bytes: s.minFree, Percent: s.minFreePercent},
		TestHooks: os.Getenv("DTASK_TEST_HOOKS") == "1",
	}
	if s.retriesSet {
		cfg.MaxRetries = &s.maxRetries
	}
	return cfg
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
