package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/dtask/dtask/worker"
	"github.com/dtask/dtask/worker/gpu"
)

const (
	// shiftLabel is the label that --shift changes.
	shiftLabel = "shift"
	// shiftFile has the present value, in the work directory.
	shiftFile = "shift"
)

// labelsAndResources defines the flags of labels and resources. The function that it returns
// sets them after the flags were read, and returns the labels for the ledger, which include
// those that each worker has by itself.
func labelsAndResources(cfg *worker.Config) func() (map[string]string, error) {
	labels, resources := make(map[string]string), make(map[string]int64)
	flag.Func("label", "KEY=VALUE: label of this worker", func(text string) error {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return errors.New("must be KEY=VALUE")
		}
		labels[key] = value
		return nil
	})
	flag.Func("resource", "NAME=AMOUNT: whole units of a resource that tasks can request", func(text string) error {
		name, amount, _ := strings.Cut(text, "=")
		n, err := strconv.ParseInt(amount, 10, 32)
		resources[name] = n * 1000
		return err //nolint:wrapcheck // package flag wraps it
	})
	flag.StringVar(&cfg.GPUs, "gpus", gpu.None, "GPUs that tasks can request; they need not exist")
	shifts := flag.String("shift", "", "VALUE,…: values of the label shift, the next one at each start")
	return func() (map[string]string, error) {
		if *shifts != "" {
			var err error
			if labels[shiftLabel], err = nextShift(cfg.WorkDir, strings.Split(*shifts, ",")); err != nil {
				return nil, err
			}
		}
		cfg.Labels, cfg.Resources = labels, resources
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("reading the host name: %w", err)
		}
		all := map[string]string{"worker": cfg.Name, "host": host, "os": runtime.GOOS, "arch": runtime.GOARCH, "isolation": "none"}
		maps.Copy(all, labels)
		return all, nil
	}
}

// nextShift returns the value after the one of the last start, and writes it down.
func nextShift(dir string, values []string) (string, error) {
	path := filepath.Join(dir, shiftFile)
	last, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the last shift: %w", err)
	}
	next := values[(slices.Index(values, string(last))+1)%len(values)] // the first one if there was none
	if err = os.MkdirAll(dir, 0o700); err == nil {
		err = os.WriteFile(path, []byte(next), 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("writing the shift: %w", err)
	}
	return next, nil
}
