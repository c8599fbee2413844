package worker

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"time"
)

// maxCheckpoint bounds the checkpoints that are sent to the coordinators, in
// bytes.
const maxCheckpoint = 64 << 10

// storeRetention is how long the store keeps the checkpoints of tasks that
// failed. Those of completed tasks are removed.
const storeRetention = 30 * 24 * time.Hour

// errTooLarge is returned for a checkpoint above maxCheckpoint by a worker
// without a store.
var errTooLarge = errors.New("packed checkpoint exceeds 64 KiB; set --checkpoint-store")

// checkpointStore is a directory that all workers share, for checkpoints that
// are too large for the coordinators' log:
//
//	CLUSTER/JOB/TASK/ATTEMPT-NUMBER   complete and synced
//	CLUSTER/JOB/TASK/.ATTEMPT-NUMBER  being written
type checkpointStore struct{ root *os.Root }

// openStore opens the directory. It must exist: creating it where nothing is
// mounted would share it with no other worker.
func openStore(dir string) (*checkpointStore, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening checkpoint store: %w", err)
	}
	return &checkpointStore{root: root}, nil
}

func (s *checkpointStore) close() {
	if s != nil {
		_ = s.root.Close() // read only
	}
}

// storeDir returns the directory of the checkpoints of an attempt's task.
func storeDir(cluster string, r ref) string {
	return path.Join(cluster, strconv.FormatUint(r.job, 10), strconv.FormatUint(uint64(r.task), 10))
}

// spill keeps written data in memory up to maxCheckpoint, then in a file of the
// store.
type spill struct {
	store *checkpointStore // nil: none configured
	dir   string
	name  string

	data []byte
	file *os.File
	size int64
	sum  hash.Hash
}

func newSpill(store *checkpointStore, dir string, attempt, number uint32) *spill {
	return &spill{store: store, dir: dir, name: fmt.Sprintf("%d-%d", attempt, number), sum: sha256.New()}
}

// Write implements io.Writer.
func (s *spill) Write(p []byte) (int, error) {
	s.size += int64(len(p))
	_, _ = s.sum.Write(p) // never fails
	if s.file == nil && s.size <= maxCheckpoint {
		s.data = append(s.data, p...)
		return len(p), nil
	}
	if s.file == nil {
		if s.store == nil {
			return 0, errTooLarge
		}
		if err := s.openFile(); err != nil {
			return 0, err
		}
	}
	n, err := s.file.Write(p)
	return n, writeError(err)
}

// openFile moves the data in memory to a file.
func (s *spill) openFile() (err error) {
	if err = s.store.root.MkdirAll(s.dir, 0o700); err == nil {
		s.file, err = s.store.root.OpenFile(path.Join(s.dir, "."+s.name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	}
	if err == nil {
		_, err = s.file.Write(s.data)
	}
	s.data = nil
	return writeError(err)
}

func writeError(err error) error {
	if err != nil {
		return fmt.Errorf("writing to checkpoint store: %w", err)
	}
	return nil
}

// publish makes the file, if there is one, durable under its name, and returns
// its path below the store.
func (s *spill) publish() (string, error) {
	if s.file == nil {
		return "", nil
	}
	name := path.Join(s.dir, s.name)
	err := errors.Join(s.file.Sync(), s.file.Close())
	s.file = nil
	if err == nil {
		err = s.store.root.Rename(path.Join(s.dir, "."+s.name), name)
	}
	if err == nil {
		err = s.store.sync(s.dir)
	}
	return name, writeError(err)
}

// discard removes what was not published.
func (s *spill) discard() {
	if s.file != nil {
		_ = s.file.Close() // it is removed
		_ = s.store.root.Remove(path.Join(s.dir, "."+s.name))
		s.file = nil
	}
}

// sync makes the names in a directory, and those of its parents, durable.
func (s *checkpointStore) sync(dir string) error {
	for ; ; dir = path.Dir(dir) {
		d, err := s.root.Open(dir)
		if err != nil {
			return err //nolint:wrapcheck // wrapped by the caller
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			return err
		}
		if dir == "." {
			return nil
		}
	}
}

// read passes the contents of a file to use, and returns an error if their
// digest is not sum.
func (s *checkpointStore) read(file string, size int64, sum []byte, use func(io.Reader) error) error {
	if s == nil {
		return errors.New("checkpoint is in the checkpoint store; set --checkpoint-store")
	}
	f, err := s.root.Open(file)
	if err != nil {
		return fmt.Errorf("reading checkpoint store: %w", err)
	}
	defer func() { _ = f.Close() }() // read only
	digest := sha256.New()
	contents := io.TeeReader(io.LimitReader(f, size), digest)
	err = use(contents)
	if err == nil {
		_, err = io.Copy(io.Discard, contents)
	}
	if err == nil && !bytes.Equal(digest.Sum(nil), sum) {
		err = errors.New("digest mismatch")
	}
	if err != nil {
		return fmt.Errorf("reading %s in checkpoint store: %w", file, err)
	}
	return nil
}

// removeOlder removes the checkpoints of a task that are older than the given
// one.
func (s *checkpointStore) removeOlder(dir string, attempt, number uint32) error {
	if s == nil {
		return nil
	}
	names, err := fs.ReadDir(s.root.FS(), dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range names {
		var a, n uint32
		if _, e := fmt.Sscanf(strings.TrimPrefix(entry.Name(), "."), "%d-%d", &a, &n); e == nil && (a < attempt || a == attempt && n < number) {
			err = errors.Join(err, s.root.Remove(path.Join(dir, entry.Name())))
		}
	}
	return removeError(err)
}

func removeError(err error) error {
	if err != nil {
		return fmt.Errorf("removing from checkpoint store: %w", err)
	}
	return nil
}

// remove removes all checkpoints of a completed task.
func (s *checkpointStore) remove(dir string) error {
	if s == nil {
		return nil
	}
	return removeError(s.root.RemoveAll(dir))
}

// removeExpired removes all checkpoints that are older than storeRetention.
func (s *checkpointStore) removeExpired() error {
	tasks, err := fs.Glob(s.root.FS(), "*/*/*")
	for _, dir := range tasks {
		if info, e := s.root.Stat(dir); e == nil && time.Since(info.ModTime()) >= storeRetention {
			err = errors.Join(err, s.root.RemoveAll(dir))
		}
	}
	return removeError(err)
}
