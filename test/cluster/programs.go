package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// BinVariable names the environment variable that holds the directory with the
// programs under test.
const BinVariable = "DTASK_BIN"

// Names of the programs.
const (
	coordinatorProgram = "dtaskd"
	workerProgram      = "dtask-worker"
	ctlProgram         = "dtaskctl"
	markProgram        = "mark"
	// MarkWorker is the worker with the handler for MarkType.
	MarkWorker = "mark-worker"
	// FaultyCoordinator is dtaskd with the switches of package faults.
	FaultyCoordinator = "dtaskd-faults"
)

// Programs are the programs under test.
type Programs struct {
	// Dir holds dtaskd, dtask-worker and dtaskctl; and mark, where tasks write
	// the ledger.
	Dir string
}

// Path is the path of a program.
func (p Programs) Path(name string) string { return filepath.Join(p.Dir, name) }

// Find returns the programs in the directory that DTASK_BIN names, or in bin/ of
// the module's root, where make build puts them.
func Find() (Programs, error) {
	dir := os.Getenv(BinVariable)
	if dir == "" {
		root, err := Root()
		if err != nil {
			return Programs{}, err
		}
		dir = filepath.Join(root, "bin")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Programs{}, fmt.Errorf("finding the programs: %w", err)
	}
	p := Programs{Dir: dir}
	for _, name := range []string{coordinatorProgram, workerProgram, ctlProgram} {
		if _, err := os.Stat(p.Path(name)); err != nil {
			return Programs{}, fmt.Errorf("finding the programs (make build makes them): %w", err)
		}
	}
	return p, nil
}

// Build builds the programs into a directory. It links those of the directory that
// DTASK_BIN names instead, so that a suite can be run against other builds. It always
// builds the programs that exist for tests only.
func Build(ctx context.Context, dir string) (Programs, error) {
	root, err := Root()
	if err != nil {
		return Programs{}, err
	}
	args := []string{"build", "-o", dir + string(filepath.Separator), "./test/cluster/mark", "./test/cluster/mark-worker"}
	if given := os.Getenv(BinVariable); given != "" {
		for _, name := range []string{coordinatorProgram, workerProgram, ctlProgram} {
			path, err := filepath.Abs(filepath.Join(given, name))
			if err != nil {
				return Programs{}, fmt.Errorf("finding %s: %w", name, err)
			}
			if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
				return Programs{}, fmt.Errorf("using the programs of %s: %w", given, err)
			}
		}
	} else {
		args = append(args, "./cmd/dtaskd", "./cmd/dtask-worker", "./cmd/dtaskctl")
	}
	faulty := []string{"build", "-tags", "faults", "-o", filepath.Join(dir, FaultyCoordinator), "./cmd/dtaskd"}
	for _, args := range [][]string{args, faulty} {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return Programs{}, fmt.Errorf("building the programs: %w\n%s", err, out)
		}
	}
	return Programs{Dir: dir}, nil
}

// Root is the root directory of this module.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the module: %w", err)
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module github.com/dtask/dtask\n") {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("finding the module: no go.mod of dtask here or above")
		}
		dir = up
	}
}
