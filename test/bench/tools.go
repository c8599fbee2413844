package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/dtask/dtask/test/cluster"
)

// tools are programs of the bench itself, built on first use.
type tools struct {
	dir   string
	paths map[string]string // of those that are built
}

func newTools() (*tools, error) {
	dir, err := os.MkdirTemp("", "dtask-bench-")
	if err != nil {
		return nil, fmt.Errorf("creating directory: %w", err)
	}
	return &tools{dir: dir, paths: make(map[string]string)}, nil
}

// need returns the path of the tool in a directory of test/bench, which may be a module
// of its own.
func (t *tools) need(ctx context.Context, name string) (string, error) {
	if path := t.paths[name]; path != "" {
		return path, nil
	}
	root, err := cluster.Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(t.dir, name)
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, ".")
	cmd.Dir = filepath.Join(root, "test", "bench", name)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", name, err, out)
	}
	t.paths[name] = path
	return path, nil
}

func (t *tools) remove() error {
	if err := os.RemoveAll(t.dir); err != nil {
		return fmt.Errorf("removing tools: %w", err)
	}
	return nil
}

// into runs a command and reads the JSON document that it prints.
func into(ctx context.Context, v any, path string, args ...string) error {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("running %s: %w\n%s", filepath.Base(path), err, out)
	}
	if err := json.Unmarshal(out, v); err != nil {
		return fmt.Errorf("reading output of %s: %w\n%s", filepath.Base(path), err, out)
	}
	return nil
}
