package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

const (
	// yardstickTime is the duration of each yardstick.
	yardstickTime = 2 * time.Second
	// yardstickEntry is the size of an entry, in bytes.
	yardstickEntry = 256
)

// yardstickSection is the section that each run measures.
const yardstickSection = "yardsticks"

// Names of yardsticks, for ratios.
const (
	syncYardstick  = "fdatasync alone"
	storeYardstick = "raft-boltdb StoreLogs alone"
	applyYardstick = "raft-boltdb Apply alone"
)

// yardsticks measures the limits of this machine's disk, where clusters store their
// data.
func yardsticks(ctx context.Context, b *bench) (err error) {
	dir, err := os.MkdirTemp("", "dtask-bench-")
	if err != nil {
		return fmt.Errorf("creating directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	syncs, err := measureSync(ctx, filepath.Join(dir, "file"))
	if err != nil {
		return err
	}
	b.table.add(syncYardstick, "/s", fmt.Sprintf("append of %d B each", yardstickEntry), syncs)
	for _, batch := range []int{1, 64} {
		stores, err := measureStore(ctx, filepath.Join(dir, fmt.Sprintf("raft-%d.db", batch)), batch)
		if err != nil {
			return err
		}
		name := storeYardstick
		if batch > 1 {
			name += fmt.Sprintf(", %d at a time", batch)
		}
		b.table.compare(name, "entries/s", fmt.Sprintf("%d B each, synced", yardstickEntry), syncYardstick, stores)
	}
	return b.applies(ctx, dir)
}

// perSecond calls f for a fixed time and returns the calls per second.
func perSecond(ctx context.Context, f func(i int) error) (float64, error) {
	start := time.Now()
	for i := 0; ; i++ {
		if took := time.Since(start); took >= yardstickTime {
			return float64(i) / took.Seconds(), nil
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if err := f(i); err != nil {
			return 0, err
		}
	}
}

func measureSync(ctx context.Context, path string) (rate float64, err error) {
	file, err := os.Create(path)
	if err != nil {
		return 0, fmt.Errorf("creating file: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	data := make([]byte, yardstickEntry)
	return perSecond(ctx, func(int) error {
		if _, err := file.Write(data); err != nil {
			return fmt.Errorf("appending: %w", err)
		}
		return dataSync(file)
	})
}

func measureStore(ctx context.Context, path string, batch int) (rate float64, err error) {
	store, err := raftboltdb.NewBoltStore(path)
	if err != nil {
		return 0, fmt.Errorf("opening store: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	logs := make([]*raft.Log, batch)
	index := uint64(0)
	rate, err = perSecond(ctx, func(int) error {
		for i := range logs {
			index++
			logs[i] = &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: make([]byte, yardstickEntry)}
		}
		if err := store.StoreLogs(logs); err != nil {
			return fmt.Errorf("storing: %w", err)
		}
		return nil
	})
	return rate * float64(batch), err
}
