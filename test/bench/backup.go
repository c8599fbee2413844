package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/dtask/dtask/test/cluster"
)

// A saves saves backups to one file, and has how long each took.
type saves struct {
	path  string    // of the file, which each backup replaces
	saved []float64 // seconds, from the start of dtaskctl to its end
}

// backup measures backups with many pending tasks, one after another, under load: how long
// each takes, the latency of tasks meanwhile, and the check of the file.
func backup(ctx context.Context, b *bench) error {
	return with(ctx, cluster.Config{}, func(c *cluster.Cluster) error {
		if _, err := b.fill(ctx, c); err != nil {
			return err
		}
		rate := b.steadyRate()
		at := fmt.Sprintf("%d tasks/s and %d pending", rate, b.pending)
		if err := b.latencyAt(ctx, c, at, rate, max(1, rate/100), "no backup: start latency"); err != nil {
			return err
		}
		s := saves{path: filepath.Join(c.Dir, "cluster.dtbk")}
		err := s.during(ctx, c, func() error {
			return b.latencyAt(ctx, c, at, rate, max(1, rate/100), "backups: start latency")
		})
		if err != nil {
			return err
		}
		b.table.add("backup: saved after", "s", at+"; dtaskctl backup save, one after another", s.saved...)
		return b.checks(ctx, c, s.path)
	})
}

// steadyRate is the load beside which something else is measured, in tasks per second: at
// most 80 % of the ceiling.
func (b *bench) steadyRate() int {
	rate := halfLoad
	if most, known := b.table.find("ceiling"); known || b.quick {
		rate = min(rate, int(most*0.8))
	}
	return max(rate, 1000)
}

// during saves backups while f runs. The last one ends after f.
func (s *saves) during(ctx context.Context, c *cluster.Cluster, f func() error) error {
	more, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1) // size 1: the result
	go func() {
		for more.Err() == nil {
			if err := s.one(ctx, c); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	err := f()
	stop()
	return errors.Join(err, <-ended)
}

// one saves a backup.
func (s *saves) one(ctx context.Context, c *cluster.Cluster, flags ...string) error {
	began := time.Now()
	args := append([]string{"--timeout", restartLimit.String(), "backup", "save", s.path, "--replace"}, flags...)
	if err := c.Run(ctx, args...).Err(); err != nil {
		return err //nolint:wrapcheck // says what it did
	}
	s.saved = append(s.saved, time.Since(began).Seconds())
	return nil
}

// checks measures the size of a backup, and the commands that read it.
func (b *bench) checks(ctx context.Context, c *cluster.Cluster, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("measuring the backup: %w", err)
	}
	b.table.add("  backup: size", "MB", "", float64(info.Size())/mega)
	for _, command := range []string{"verify", "inspect"} {
		var took []float64
		for range b.rounds {
			seconds, err := offline(ctx, c, "backup", command, path)
			if err != nil {
				return err
			}
			took = append(took, seconds)
		}
		b.table.add("  backup: "+command+" takes", "s", "dtaskd backup "+command, took...)
	}
	return nil
}

// offline runs a command of dtaskd that needs no cluster, and returns how many seconds it
// takes.
func offline(ctx context.Context, c *cluster.Cluster, args ...string) (float64, error) {
	began := time.Now()
	out, err := exec.CommandContext(ctx, c.Programs.Path("dtaskd"), args...).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("running dtaskd %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return time.Since(began).Seconds(), nil
}
