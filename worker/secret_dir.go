package worker

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// memoryDir is a directory in memory on most systems.
	memoryDir = "/dev/shm"
	// memoryPrefix begins the name of a worker's directory there. The rest is random:
	// other users can't take the name in advance.
	memoryPrefix = "dtask-secrets-"
	// secretsLink is a symbolic link in the work directory to the directory in memory.
	secretsLink = "secrets"
	// secretsSuffix ends the name of the directory with the copies for one attempt.
	secretsSuffix = ".secrets"
)

// makeSecretDir creates the directory for the copies of secrets. If memory is not in
// memory, they are beside the working directories of the commands.
func (d *dirs) makeSecretDir(memory string) error {
	d.secrets = filepath.Join(d.root, "jobs")
	if !isMemory(memory) {
		return nil
	}
	// The link is there first, so that the next process finds what this one leaves.
	dir, link := filepath.Join(memory, memoryPrefix+rand.Text()), filepath.Join(d.root, secretsLink)
	if err := os.Symlink(dir, link); err != nil {
		return fmt.Errorf("creating work directory: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil { // full, or not writable
		_ = os.Remove(link) // a link to nothing has no effect
		return nil          //nolint:nilerr // the other place has no disadvantage but the disk
	}
	d.secrets = dir
	if !d.others {
		return nil
	}
	if err := os.Chmod(dir, passable); err != nil {
		return fmt.Errorf("creating a directory for copies of secrets: %w", err)
	}
	return nil
}

// removeSecretDir removes the directory in memory of this process, or of an earlier one.
func (d *dirs) removeSecretDir() error {
	link := filepath.Join(d.root, secretsLink)
	dir, err := os.Readlink(link)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("removing copies of secrets: %w", err)
	}
	// Nothing else is removed, whatever the link refers to.
	if filepath.Dir(dir) == memoryDir && strings.HasPrefix(filepath.Base(dir), memoryPrefix) && isOwn(dir) {
		err = os.RemoveAll(dir)
	}
	if err == nil {
		err = os.Remove(link)
	}
	if err != nil {
		return fmt.Errorf("removing copies of secrets: %w", err)
	}
	return nil
}

// secretCopies returns the directory for the copies of an attempt's secrets.
func (d *dirs) secretCopies(r ref) string { return filepath.Join(d.secrets, r.String()+secretsSuffix) }

// isMemory reports whether a directory is in memory.
func isMemory(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Type == unix.TMPFS_MAGIC
}

// isOwn reports whether a directory belongs to the worker's user.
func isOwn(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
