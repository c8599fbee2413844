package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// applies measures Raft on raft-boltdb alone: three replicas in this process,
// connected over loopback, with an empty state machine.
func (b *bench) applies(ctx context.Context, dir string) error {
	for _, y := range []struct {
		name           string
		size, inFlight int
	}{
		{applyYardstick, 256, 64},
		{applyYardstick + ", large entries", 64 << 10, 4},
		{applyYardstick + ", one at a time", 256, 1},
	} {
		var rates []float64
		for i := range b.rounds {
			rate, err := measureApply(ctx, filepath.Join(dir, fmt.Sprintf("apply-%d-%d-%d", y.size, y.inFlight, i)), y.size, y.inFlight)
			if err != nil {
				return err
			}
			rates = append(rates, rate)
		}
		b.table.compare(y.name, "entries/s", fmt.Sprintf("%d B each, %d in flight, 3 replicas in one process, synced", y.size, y.inFlight), syncYardstick, rates...)
	}
	return nil
}

// A bare replica is Raft without dtask.
type bare struct {
	raft      *raft.Raft
	store     *raftboltdb.BoltStore
	transport *raft.NetworkTransport
}

func (r *bare) close() error {
	var errs []error
	if r.raft != nil {
		errs = append(errs, r.raft.Shutdown().Error())
	}
	if r.transport != nil {
		errs = append(errs, r.transport.Close())
	}
	if r.store != nil {
		errs = append(errs, r.store.Close())
	}
	return errors.Join(errs...)
}

func newBare(dir, id string) (r *bare, err error) {
	r = new(bare)
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return r, fmt.Errorf("creating directory: %w", err)
	}
	if r.store, err = raftboltdb.NewBoltStore(filepath.Join(dir, "raft.db")); err != nil {
		return r, fmt.Errorf("opening store: %w", err)
	}
	cached, err := raft.NewLogCache(256, r.store)
	if err != nil {
		return r, fmt.Errorf("creating cache: %w", err)
	}
	quiet := hclog.NewNullLogger()
	if r.transport, err = raft.NewTCPTransportWithLogger("127.0.0.1:0", nil, 2, 10*time.Second, quiet); err != nil {
		return r, fmt.Errorf("listening: %w", err)
	}
	cfg := raft.DefaultConfig()
	cfg.LocalID, cfg.Logger, cfg.BatchApplyCh = raft.ServerID(id), quiet, true
	if r.raft, err = raft.NewRaft(cfg, noState{}, cached, r.store, raft.NewInmemSnapshotStore(), r.transport); err != nil {
		return r, fmt.Errorf("starting Raft: %w", err)
	}
	return r, nil
}

// measureApply bootstraps a cluster in a directory and applies entries, with a limit
// of entries in flight.
func measureApply(ctx context.Context, dir string, size, inFlight int) (rate float64, err error) {
	var all []*bare
	defer func() {
		for _, r := range all {
			err = errors.Join(err, r.close())
		}
	}()
	var servers []raft.Server
	for _, id := range []string{"n1", "n2", "n3"} {
		r, err := newBare(filepath.Join(dir, id), id)
		if err != nil {
			return 0, err
		}
		all = append(all, r)
		servers = append(servers, raft.Server{ID: raft.ServerID(id), Address: r.transport.LocalAddr()})
	}
	if err := all[0].raft.BootstrapCluster(raft.Configuration{Servers: servers}).Error(); err != nil {
		return 0, fmt.Errorf("bootstrapping cluster: %w", err)
	}
	leader, err := leading(ctx, all)
	if err != nil {
		return 0, err
	}
	flight := make([]raft.ApplyFuture, 0, inFlight)
	rate, err = perSecond(ctx, func(int) error {
		if len(flight) == inFlight {
			if err := flight[0].Error(); err != nil {
				return fmt.Errorf("applying: %w", err)
			}
			flight = append(flight[:0], flight[1:]...)
		}
		flight = append(flight, leader.Apply(make([]byte, size), time.Second))
		return nil
	})
	for _, f := range flight {
		err = errors.Join(err, f.Error())
	}
	return rate, err
}

// leading waits until one of them leads.
func leading(ctx context.Context, all []*bare) (*raft.Raft, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(time.Minute) // a guard against hanging
	defer limit.Stop()
	for {
		for _, r := range all {
			if r.raft.State() == raft.Leader {
				return r.raft, nil
			}
		}
		select {
		case <-tick.C:
		case <-limit.C:
			return nil, errors.New("no leader elected")
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// noState is an empty state machine.
type noState struct{}

func (noState) Apply(*raft.Log) any                 { return nil }
func (noState) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.ErrUnsupported }
func (noState) Restore(r io.ReadCloser) error       { return r.Close() }
