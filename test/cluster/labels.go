package cluster

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dtask/dtask/client"
)

// labels are those that a worker declares.
func (c *Cluster) labels(worker string) map[string]string {
	if c.cfg.Labels == nil {
		return nil
	}
	return c.cfg.Labels(worker)
}

// labelFlags are the flags with which a worker declares its labels.
func (c *Cluster) labelFlags(worker string) (flags []string) {
	labels := c.labels(worker)
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		flags = append(flags, "--label", key+"="+labels[key])
	}
	return flags
}

// joinOf is what a worker joins with: it knows all coordinators, and its labels are granted.
func (c *Cluster) joinOf(worker string) string {
	if c.security == nil || len(c.labels(worker)) == 0 {
		return c.security.join(strings.Join(c.Addrs, ","))
	}
	return "@" + c.security.path(worker+".join")
}

// writeJoins makes the join strings of all workers.
func (c *Cluster) writeJoins(ctx context.Context, cl *client.Client) error {
	write := func(name string, labels map[string]string) error {
		text, err := c.security.WorkerJoin(ctx, cl, labels)
		if err != nil {
			return err //nolint:wrapcheck // says what it does
		}
		if err := os.WriteFile(filepath.Join(c.security.dir, name), []byte(text.Reveal()), 0o600); err != nil {
			return fmt.Errorf("writing the join string of workers: %w", err)
		}
		return nil
	}
	if err := write(joinFile, nil); err != nil {
		return err
	}
	for _, w := range c.Workers() {
		if labels := c.labels(w.Name); len(labels) > 0 {
			if err := write(w.Name+".join", labels); err != nil {
				return err
			}
		}
	}
	return nil
}
