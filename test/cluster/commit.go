package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ErrUnknownCommit is the error of a commit that is not in this clone.
var ErrUnknownCommit = errors.New("it is not in this clone")

// CommitSource is the directory, in that of BuildCommit, that has the files of the commit.
const CommitSource = "source"

// BuildCommit builds packages of an earlier commit of this repository into dir, which must
// exist. The working tree and the repository stay as they are. The version of the programs is
// "base-" and the beginning of the commit. The error is ErrUnknownCommit if the clone does not
// have the commit.
func BuildCommit(ctx context.Context, repository, commit, dir string, packages ...string) (Programs, error) {
	source := filepath.Join(dir, CommitSource)
	if err := checkOut(ctx, repository, commit, source); err != nil {
		return Programs{}, err
	}
	programs := filepath.Join(dir, "bin")
	args := append([]string{
		"build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-X github.com/dtask/dtask/internal/buildinfo.version=base-" + commit[:min(len(commit), 12)],
		"-o", programs + string(filepath.Separator),
	}, packages...)
	build := exec.CommandContext(ctx, "go", args...) //nolint:gosec // a commit of this repository
	build.Dir = source
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return Programs{}, fmt.Errorf("building commit %s: %w\n%s", commit, err, out)
	}
	return Programs{Dir: programs}, nil
}

// checkOut writes the files of a commit into a new directory.
func checkOut(ctx context.Context, repository, commit, dir string) error {
	find := exec.CommandContext(ctx, "git", "-C", repository, "cat-file", "-e", commit+"^{commit}")
	if out, err := find.CombinedOutput(); err != nil {
		return fmt.Errorf("commit %q: %w: fetch the whole history (git fetch --unshallow), or correct its name: %w\n%s", commit, ErrUnknownCommit, err, out)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("making a directory for commit %s: %w", commit, err)
	}
	var files, problems bytes.Buffer
	archive := exec.CommandContext(ctx, "git", "-C", repository, "archive", commit)
	archive.Stdout, archive.Stderr = &files, &problems
	if err := archive.Run(); err != nil {
		return fmt.Errorf("reading commit %s: %w\n%s", commit, err, problems.String())
	}
	extract := exec.CommandContext(ctx, "tar", "-x", "-C", dir)
	extract.Stdin = &files
	if out, err := extract.CombinedOutput(); err != nil {
		return fmt.Errorf("extracting commit %s: %w\n%s", commit, err, out)
	}
	return nil
}
