package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/test/cluster"
)

// A footprint is the memory and disk use of the replicas.
type footprint struct {
	resident float64 // MB, the largest of them
	disk     float64 // MB, the largest of them
}

// sustained runs many tasks one after another, and compares the memory and disk use
// of the replicas at the end with that after the first fifth.
func sustained(ctx context.Context, b *bench) error {
	return with(ctx, b.usualCluster(), func(c *cluster.Cluster) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		defer func() { _ = cl.Close() }()
		first := b.sustained / 5
		if _, err := oneRound(ctx, c, first, nil); err != nil {
			return err
		}
		early, err := footprintOf(ctx, c, cl)
		if err != nil {
			return err
		}
		r, err := oneRound(ctx, c, b.sustained-first, nil)
		if err != nil {
			return err
		}
		late, err := footprintOf(ctx, c, cl)
		if err != nil {
			return err
		}
		setting := fmt.Sprintf("%d tasks of 32 B, 10,000 in a job, %s", b.sustained, b.usual())
		b.table.compare("sustained", "tasks/s", setting+"; after the first fifth", applyYardstick, r.TasksPerSecond)
		b.costs("sustained", []round{r})
		b.table.add("  resident memory after the first fifth", "MB", "largest replica, at rest", early.resident)
		b.table.add("  resident memory at the end", "MB", "largest replica, at rest", late.resident)
		b.table.add("  disk after the first fifth", "MB", "largest replica", early.disk)
		b.table.add("  disk at the end", "MB", "largest replica", late.disk)
		return nil
	})
}

// settling is the time in which replicas free temporary memory: a coordinator does
// so after five idle seconds.
const settling = 8 * time.Second

func footprintOf(ctx context.Context, c *cluster.Cluster, cl *client.Client) (f footprint, err error) {
	if err := cluster.Pause(ctx, settling); err != nil {
		return f, err
	}
	replicas, err := cl.Stats(ctx)
	if err != nil {
		return f, fmt.Errorf("reading counters: %w", err)
	}
	const mega = 1 << 20
	for _, r := range replicas {
		f.resident = max(f.resident, float64(r.Stats.GetRssBytes())/mega)
	}
	for _, n := range c.Coordinators() {
		size, err := sizeOf(n.DataDir)
		if err != nil {
			return f, err
		}
		f.disk = max(f.disk, float64(size)/mega)
	}
	return f, nil
}

// sizeOf returns the size of a directory's files in bytes.
func sizeOf(dir string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // removed meanwhile
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err //nolint:wrapcheck // wrapped below
		}
		total += info.Size()
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("measuring %s: %w", dir, err)
	}
	return total, nil
}
