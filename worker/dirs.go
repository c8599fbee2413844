package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// checkpointRetention is how long the checkpoint directory of a task is kept
// that never completed here.
const checkpointRetention = 7 * 24 * time.Hour

// dirs is the worker's own directory:
//
//	lock                                 held by the process that uses the directory
//	name                                 of the worker, if it chose its name itself
//	worker.pem, cluster.json             key and cluster of a worker that has joined by a join string
//	jobs/JOB-TASK-ATTEMPT/               a command's working directory
//	secrets                              link to a directory in memory with copies of secrets; else they are in jobs
//	logs/CLUSTER/                        outputs; package worker/logs
//	checkpoints/CLUSTER/JOB/TASK/        outlives attempts and processes
//	checkpoints/CLUSTER/JOB/TASK.unsaved attempt that left it, if it could not be saved elsewhere
type dirs struct {
	root    string
	secrets string // where copies of secrets are
	others  bool   // commands run under other users than the worker's
	lock    *os.File
	lockID  string
	mu      sync.Mutex // held while a directory is created or an empty parent removed: neither may disturb the other
}

// openDirs creates the directory, locks it against other processes, and removes
// the files of earlier ones. It returns *WorkDirInUseError if another process has
// locked it.
func openDirs(root string) (*dirs, error) {
	root, err := filepath.Abs(root)
	if err == nil {
		err = os.MkdirAll(root, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("creating work directory: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(root, "lock"), os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // named by the operator
	if err != nil {
		return nil, fmt.Errorf("locking work directory: %w", err)
	}
	d := &dirs{root: root, lock: file, lockID: lockID(file)}
	if err = lock(file, root); err == nil {
		err = d.clean()
	}
	if err != nil {
		_ = file.Close() // nothing was written
		return nil, err
	}
	return d, nil
}

// clean removes the files of earlier processes, except recent checkpoints, and
// creates the directories of this one.
func (d *dirs) clean() error {
	expired := []string{filepath.Join(d.root, "jobs")}
	tasks, _ := filepath.Glob(filepath.Join(d.root, "checkpoints", "*", "*", "*")) // the pattern is valid
	for _, dir := range tasks {
		if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) >= checkpointRetention {
			expired = append(expired, dir)
		}
	}
	if err := d.removeSecretDir(); err != nil {
		return err
	}
	for _, dir := range expired {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("cleaning work directory: %w", err)
		}
	}
	for _, dir := range []string{"jobs", "logs"} {
		if err := os.MkdirAll(filepath.Join(d.root, dir), 0o700); err != nil {
			return fmt.Errorf("creating work directory: %w", err)
		}
	}
	return nil
}

// close removes what only this process uses, and unlocks the directory.
func (d *dirs) close() error {
	secrets := d.removeSecretDir()
	// A program that is being started may still hold the descriptor, and with
	// it the lock: closing ours is not enough.
	unlock := unix.Flock(int(d.lock.Fd()), unix.LOCK_UN)
	if err := errors.Join(unlock, d.lock.Close()); err != nil {
		return errors.Join(secrets, fmt.Errorf("unlocking work directory: %w", err))
	}
	return secrets
}

func (d *dirs) job(r ref) string { return filepath.Join(d.root, "jobs", r.String()) }

func (d *dirs) logs() string { return filepath.Join(d.root, "logs") }

func (d *dirs) checkpoint(cluster string, r ref) string {
	if cluster == "" {
		cluster = "unknown"
	}
	return filepath.Join(d.root, "checkpoints", filepath.Base(cluster),
		strconv.FormatUint(r.job, 10), strconv.FormatUint(uint64(r.task), 10))
}

// make creates a directory and its parents.
func (d *dirs) make(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
		err = d.makeAll(dir)
	}
	if err != nil {
		return fmt.Errorf("creating %s: %w", dir, err)
	}
	return nil
}

// makeAll creates a directory and its parents below the root, which users of commands can
// pass.
func (d *dirs) makeAll(dir string) error {
	err := os.MkdirAll(dir, 0o700)
	for parent := filepath.Dir(dir); err == nil && d.others && len(parent) > len(d.root); parent = filepath.Dir(parent) {
		err = os.Chmod(parent, passable)
	}
	return err //nolint:wrapcheck // wrapped by the caller
}

// remove removes a directory with its contents.
func remove(dir string) error {
	if os.Remove(dir) == nil {
		return nil // it was empty, as most are
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing %s: %w", dir, err)
	}
	return nil
}

// removeEmpty removes a directory if it is empty, and then its parent if that
// is. It reports whether it removed the directory.
func (d *dirs) removeEmpty(dir string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if os.Remove(dir) != nil {
		return false
	}
	_ = os.Remove(filepath.Dir(dir)) // fails while it is in use
	return true
}
