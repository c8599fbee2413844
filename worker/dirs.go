package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// keepCheckpoints is how long the checkpoint folder of a task that never
// completed here is kept.
const checkpointRetention = 7 * 24 * time.Hour

// dirs is the worker's own folder:
//
//	lock                                  held by the process that uses it
//	jobs/JOB/TASK@ATTEMPT/                a command's working directory
//	logs/JOB/TASK@ATTEMPT.{stdout,stderr} what it wrote
//	checkpoints/CLUSTER/JOB/TASK/         outlives attempts and processes
//	checkpoints/CLUSTER/JOB/TASK.kept     which attempt left it, if it could not be saved elsewhere
type dirs struct {
	root string
	lock *os.File
	mu   sync.Mutex // held while a folder is made or an empty parent removed, so that neither trips over the other
}

// openDirs makes the folder, locks it against other processes and removes what
// an earlier one left.
func openDirs(root string) (*dirs, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("finding the work folder: %w", err)
	}
	if err = os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("making the work folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(root, "lock"), os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the person who starts the worker names it
	if err != nil {
		return nil, fmt.Errorf("locking the work folder: %w", err)
	}
	d := &dirs{root: root, lock: lock}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close() // nothing was written
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("work folder %s is used by another process; give this worker its own --name or --work-dir", root)
		}
		return nil, fmt.Errorf("locking the work folder: %w", err)
	}
	if err := d.clean(); err != nil {
		_ = lock.Close() // the first error is the one to report
		return nil, err
	}
	return d, nil
}

// clean removes what an earlier process left, but for young checkpoints.
func (d *dirs) clean() error {
	for _, name := range []string{"jobs", "logs"} {
		if err := os.RemoveAll(filepath.Join(d.root, name)); err != nil {
			return fmt.Errorf("removing what an earlier process left: %w", err)
		}
	}
	tasks, err := filepath.Glob(filepath.Join(d.root, "checkpoints", "*", "*", "*"))
	if err != nil {
		return fmt.Errorf("looking for old checkpoints: %w", err)
	}
	for _, dir := range tasks {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < checkpointRetention {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("removing an old checkpoint: %w", err)
		}
	}
	return nil
}

// close lets another process use the folder.
func (d *dirs) close() error {
	// A program that is being started may still have the descriptor: closing
	// ours alone would leave the lock with it.
	unlock := unix.Flock(int(d.lock.Fd()), unix.LOCK_UN)
	if err := errors.Join(unlock, d.lock.Close()); err != nil {
		return fmt.Errorf("unlocking the work folder: %w", err)
	}
	return nil
}

func (d *dirs) job(r ref) string {
	return filepath.Join(d.root, "jobs", strconv.FormatUint(r.job, 10), taskAt(r))
}

// log is the path of an attempt's log without its ending.
func (d *dirs) log(r ref) string {
	return filepath.Join(d.root, "logs", strconv.FormatUint(r.job, 10), taskAt(r))
}

func (d *dirs) checkpoint(cluster string, r ref) string {
	if cluster == "" {
		cluster = "unknown"
	}
	return filepath.Join(d.root, "checkpoints", filepath.Base(cluster),
		strconv.FormatUint(r.job, 10), strconv.FormatUint(uint64(r.task), 10))
}

func taskAt(r ref) string {
	return strconv.FormatUint(uint64(r.task), 10) + "@" + strconv.FormatUint(uint64(r.attempt), 10)
}

// make makes a folder and its parents.
func (d *dirs) make(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making %s: %w", dir, err)
	}
	return nil
}

// remove removes a folder with all that is in it, and its parent if that is
// empty then.
func (d *dirs) remove(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing %s: %w", dir, err)
	}
	d.removeEmpty(filepath.Dir(dir))
	return nil
}

// removeEmpty removes a folder if nothing is in it.
func (d *dirs) removeEmpty(dir string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = os.Remove(dir) // fails while it is used
}
