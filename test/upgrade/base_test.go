package upgrade

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/dtask/dtask/test/cluster"
)

// baseCommit returns the commit that the variable of the base or the file base names.
func baseCommit() (string, error) {
	if commit := os.Getenv(baseVariable); commit != "" {
		return commit, nil
	}
	text, err := os.ReadFile("base")
	if err != nil {
		return "", fmt.Errorf("reading the commit of the base build: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// buildBase builds the programs of a commit into dir. The working tree and the
// repository stay as they are.
func buildBase(ctx context.Context, repository, commit, dir string) (cluster.Programs, error) {
	source := filepath.Join(dir, "source")
	if err := checkOut(ctx, repository, commit, source); err != nil {
		return cluster.Programs{}, err
	}
	programs := filepath.Join(dir, "bin")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", //nolint:gosec // a commit of this repository
		"-ldflags", "-X github.com/dtask/dtask/internal/buildinfo.version=base-"+commit[:min(len(commit), 12)],
		"-o", programs+string(filepath.Separator), "./cmd/dtaskd", "./cmd/dtaskctl", "./test/cluster/mark-worker")
	build.Dir = source
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return cluster.Programs{}, fmt.Errorf("building the base %s: %w\n%s", commit, err, out)
	}
	return cluster.Programs{Dir: programs}, nil
}

// checkOut writes the files of a commit into a new directory.
func checkOut(ctx context.Context, repository, commit, dir string) error {
	find := exec.CommandContext(ctx, "git", "-C", repository, "cat-file", "-e", commit+"^{commit}")
	if out, err := find.CombinedOutput(); err != nil {
		return fmt.Errorf("the base commit %q, which test/upgrade/base names, is not in this clone: "+
			"fetch the whole history (git fetch --unshallow), or correct the file: %w\n%s", commit, err, out)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("making a directory for the base: %w", err)
	}
	var files, problems bytes.Buffer
	archive := exec.CommandContext(ctx, "git", "-C", repository, "archive", commit)
	archive.Stdout, archive.Stderr = &files, &problems
	if err := archive.Run(); err != nil {
		return fmt.Errorf("reading the base %s: %w\n%s", commit, err, problems.String())
	}
	extract := exec.CommandContext(ctx, "tar", "-x", "-C", dir)
	extract.Stdin = &files
	if out, err := extract.CombinedOutput(); err != nil {
		return fmt.Errorf("extracting the base %s: %w\n%s", commit, err, out)
	}
	return nil
}
