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

// maxCheckpoint is how long a checkpoint may be that goes through the
// coordinators, in bytes.
const maxCheckpoint = 64 << 10

// keepStored is how long what tasks that failed for good left in the store is
// kept. Those that complete take theirs with them.
const storeRetention = 30 * 24 * time.Hour

// errTooLarge is returned for a checkpoint above maxCheckpoint by a worker that
// shares no folder with others.
var errTooLarge = errors.New("it has more than 64 KiB when packed, and this worker has no --checkpoint-store")

// checkpointStore is a folder that all workers share, for checkpoints that are
// too large for the log:
//
//	CLUSTER/JOB/TASK/ATTEMPT-NUMBER   complete and synced
//	CLUSTER/JOB/TASK/.ATTEMPT-NUMBER  being written
type checkpointStore struct{ root *os.Root }

// openStore opens the folder. It must be there: one that was made here, because
// nothing is mounted, would be shared with nobody.
func openStore(dir string) (*checkpointStore, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the checkpoint store: %w", err)
	}
	return &checkpointStore{root: root}, nil
}

func (s *checkpointStore) close() {
	if s != nil {
		_ = s.root.Close() // a folder
	}
}

// storedFolder is where the checkpoints of an attempt's task are.
func storeDir(cluster string, r ref) string {
	return path.Join(cluster, strconv.FormatUint(r.job, 10), strconv.FormatUint(uint64(r.task), 10))
}

// spill keeps what is written to it in memory while it is short, then in a file
// of the store.
type spill struct {
	store *checkpointStore // nil: there is none
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
	if err != nil {
		return n, fmt.Errorf("writing to the checkpoint store: %w", err)
	}
	return n, nil
}

// begin moves what is in memory to the file.
func (s *spill) openFile() (err error) {
	if err = s.store.root.MkdirAll(s.dir, 0o700); err == nil {
		s.file, err = s.store.root.OpenFile(path.Join(s.dir, "."+s.name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	}
	if err == nil {
		_, err = s.file.Write(s.data)
	}
	if err != nil {
		return fmt.Errorf("writing to the checkpoint store: %w", err)
	}
	s.data = nil
	return nil
}

// publish makes the file, if there is one, complete and durable under its name,
// and gives its path below the store.
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
	if err != nil {
		return "", fmt.Errorf("writing to the checkpoint store: %w", err)
	}
	return name, nil
}

// discard removes what was not published.
func (s *spill) discard() {
	if s.file != nil {
		_ = s.file.Close() // it is removed
		_ = s.store.root.Remove(path.Join(s.dir, "."+s.name))
		s.file = nil
	}
}

// sync makes the names in a folder, and those of its parents, durable.
func (s *checkpointStore) sync(dir string) error {
	for ; ; dir = path.Dir(dir) {
		folder, err := s.root.Open(dir)
		if err != nil {
			return err //nolint:wrapcheck // the caller says what for
		}
		if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
			return err
		}
		if dir == "." {
			return nil
		}
	}
}

// read gives the contents of a file to use, and then says whether they were
// what the log says.
func (s *checkpointStore) read(file string, size int64, sum []byte, use func(io.Reader) error) error {
	if s == nil {
		return errors.New("it is in the checkpoint store, and this worker has no --checkpoint-store")
	}
	f, err := s.root.Open(file)
	if err != nil {
		return fmt.Errorf("reading the checkpoint store: %w", err)
	}
	defer func() { _ = f.Close() }() // read only
	digest := sha256.New()
	contents := io.TeeReader(io.LimitReader(f, size), digest)
	err = use(contents)
	if err == nil {
		_, err = io.Copy(io.Discard, contents)
	}
	if err == nil && !bytes.Equal(digest.Sum(nil), sum) {
		err = errors.New("its digest is not what was saved")
	}
	if err != nil {
		return fmt.Errorf("reading %s in the checkpoint store: %w", file, err)
	}
	return nil
}

// removeOlder removes the checkpoints of a task that one has replaced.
func (s *checkpointStore) removeOlder(dir string, attempt, number uint32) error {
	if s == nil {
		return nil
	}
	names, err := fs.ReadDir(s.root.FS(), dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("tidying the checkpoint store: %w", err)
	}
	for _, entry := range names {
		a, n, ok := strings.Cut(strings.TrimPrefix(entry.Name(), "."), "-")
		was, err1 := strconv.ParseUint(a, 10, 32)
		nth, err2 := strconv.ParseUint(n, 10, 32)
		if !ok || err1 != nil || err2 != nil || was > uint64(attempt) || was == uint64(attempt) && nth >= uint64(number) {
			continue
		}
		if err := s.root.Remove(path.Join(dir, entry.Name())); err != nil {
			return fmt.Errorf("tidying the checkpoint store: %w", err)
		}
	}
	return nil
}

// remove removes all checkpoints of a task that has completed.
func (s *checkpointStore) remove(dir string) error {
	if s == nil {
		return nil
	}
	if err := s.root.RemoveAll(dir); err != nil {
		return fmt.Errorf("tidying the checkpoint store: %w", err)
	}
	return nil
}

// tidy removes what has been there for too long.
func (s *checkpointStore) removeExpired() error {
	tasks, err := fs.Glob(s.root.FS(), "*/*/*")
	if err != nil {
		return fmt.Errorf("tidying the checkpoint store: %w", err)
	}
	for _, dir := range tasks {
		info, err := s.root.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < storeRetention {
			continue
		}
		if err := s.root.RemoveAll(dir); err != nil {
			return fmt.Errorf("tidying the checkpoint store: %w", err)
		}
	}
	return nil
}
