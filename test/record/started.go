package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// StartedEnv names the environment variable with the path of the file of a started run.
// AppendIfAsked removes the file when it records a failure.
const StartedEnv = "DTASK_RECORD_STARTED"

// startedInfix is between the path of a record and what tells started runs apart.
const startedInfix = ".started-"

// A Started is a run that has begun and has not ended. A file beside the record holds the
// line that is recorded if the run never ends in an orderly way.
type Started struct {
	// Path is what StartedEnv must be for the run's processes.
	Path string

	record string
	run    Run
	file   *os.File // locked until End; a file without a lock was left behind
}

// Start notes that a run begins. Its commit and core are those of now.
func Start(ctx context.Context, record string, r Run) (*Started, error) {
	if err := fill(ctx, &r); err != nil {
		return nil, err
	}
	r.Failed = "ended without a result"
	file, err := os.CreateTemp(filepath.Dir(record), filepath.Base(record)+startedInfix)
	if err != nil {
		return nil, fmt.Errorf("noting a started run: %w", err)
	}
	text, err := json.Marshal(&r)
	if err == nil {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
	}
	if err == nil {
		_, err = file.Write(text)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("noting a started run: %w", err), file.Close(), os.Remove(file.Name()))
	}
	return &Started{Path: file.Name(), record: record, run: r, file: file}, nil
}

// End notes that the run has ended. If failed is not empty and the run itself has recorded
// no failure, End records one. Otherwise the run's own lines are complete.
func (s *Started) End(ctx context.Context, failed string) error {
	_, err := os.Stat(s.Path)
	itself := errors.Is(err, fs.ErrNotExist)
	if failed != "" && !itself {
		r := s.run
		r.Seconds, r.At, r.Failed = time.Since(s.run.At).Seconds(), time.Time{}, failed
		if err := Append(ctx, s.record, &r); err != nil {
			return errors.Join(err, s.file.Close()) // AppendAbandoned records it later
		}
	}
	return errors.Join(removeIfPresent(s.Path), s.file.Close())
}

// AppendAbandoned records the runs that were started and never ended because the process
// that called Start is gone.
func AppendAbandoned(ctx context.Context, record string) error {
	paths, err := filepath.Glob(record + startedInfix + "*")
	if err != nil {
		return fmt.Errorf("looking for started runs: %w", err)
	}
	for _, path := range paths {
		err = errors.Join(err, appendAbandoned(ctx, record, path))
	}
	return err
}

func appendAbandoned(ctx context.Context, record, path string) error {
	file, err := os.Open(path) //nolint:gosec // a file beside the record
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading a started run: %w", err)
	}
	defer func() { _ = file.Close() }() // read only
	if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return nil // it is running
	}
	// Another process may have recorded and removed it before the lock.
	opened, err := file.Stat()
	if err != nil {
		return fmt.Errorf("reading a started run: %w", err)
	}
	if now, err := os.Stat(path); err != nil || !os.SameFile(opened, now) || now.Size() == 0 {
		return nil // it was removed, or is being started
	}
	var r Run
	if err := json.NewDecoder(file).Decode(&r); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	if err := Append(ctx, record, &r); err != nil {
		return err
	}
	return removeIfPresent(path)
}

func removeIfPresent(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a started run: %w", err)
	}
	return nil
}
