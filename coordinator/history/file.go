package history

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/dtask/dtask/coordinator/history/format"
	"github.com/dtask/dtask/coordinator/history/index"
	"github.com/dtask/dtask/internal/mmap"
)

const (
	// releaseInterval is after how many bytes of jobs, read or written, the memory of
	// the mapped file is released.
	releaseInterval = 8 << 20
	// initialMapping is how much address space is mapped at the start: extending the
	// mapping copies all that the transaction has changed and waits for all readers.
	// Address space beyond the end of the file costs nothing, except on Windows, where
	// the file would get that long.
	initialMapping = 1 << 30
	// pageSize is that of a new file; an existing file keeps its own. bbolt writes page
	// by page, and mostly appends new jobs: larger pages mean fewer writes and less
	// empty space.
	pageSize = 16 << 10
	// growBytes is by how many bytes more than needed the file grows.
	growBytes = 1 << 20
	// quarantineSuffix is added to the name of a damaged file; only the last is kept.
	quarantineSuffix = ".damaged"
)

func initialMmapSize() int {
	if runtime.GOOS == "windows" || strconv.IntSize < 64 {
		return 0
	}
	return initialMapping
}

// file is the bbolt file. It is safe for concurrent use, except touched.
type file struct {
	path string

	mu           sync.RWMutex // guards db against being closed during a transaction
	db           *bbolt.DB    // nil once closed
	oldDB        *bbolt.DB    // the quarantined file, if it was open then
	sinceRelease int          // bytes since the mapping was released; of the writer

	committed func() // for tests: called after each write transaction; may be nil
}

var errClosed = errors.New("history is closed")

// openFile opens or creates the file. It returns a *format.DamageError for one that
// can't be read, and leaves a file of another format unchanged.
func openFile(path string) (*file, meta, error) {
	db, m, err := openDB(path)
	return &file{path: path, db: db}, m, err
}

func openDB(path string) (db *bbolt.DB, m meta, err error) {
	err = guard(func() error {
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{
			Timeout: time.Second, FreelistType: bbolt.FreelistMapType, InitialMmapSize: initialMmapSize(), PageSize: pageSize,
		})
		if err != nil {
			return openError(err)
		}
		db.AllocSize = growBytes
		err = db.Update(func(tx *bbolt.Tx) (err error) {
			if m, err = loadMeta(tx); err != nil {
				return err
			}
			if err = createBuckets(tx); err != nil {
				return err
			}
			return removeInterrupted(tx)
		})
		if err != nil {
			_ = db.Close()
		}
		return err
	})
	return db, m, err
}

// openError returns an error of bbolt as it is if it says nothing about what the file holds:
// another process uses it, it can't be accessed, or the disk is full.
func openError(err error) error {
	for _, other := range []error{bolterrors.ErrTimeout, fs.ErrPermission, syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, other) {
			return err
		}
	}
	return format.Damaged("%v", err)
}

func createBuckets(tx *bbolt.Tx) error {
	for _, name := range buckets {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return openError(err)
		}
	}
	if err := index.Create(tx); err != nil {
		return openError(err)
	}
	return nil
}

// guard turns a panic into an error: bbolt panics on an unexpected page, and reading a
// page beyond the end of the file is a memory fault.
func guard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = format.Damaged("%v", p)
		}
	}()
	return do()
}

// view runs do in a read transaction.
func (f *file) view(do func(tx *bbolt.Tx) error) error {
	return f.guarded(func(db *bbolt.DB) error { return db.View(do) })
}

// update runs do in a write transaction, which is synced when update returns.
func (f *file) update(do func(tx *bbolt.Tx) error) error {
	err := f.guarded(func(db *bbolt.DB) error { return db.Update(do) })
	if f.committed != nil {
		f.committed()
	}
	return err
}

func (f *file) guarded(do func(db *bbolt.DB) error) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.db == nil {
		return errClosed
	}
	return guard(func() error { return do(f.db) })
}

// touched counts bytes that were read or written, and releases the memory of the
// mapped pages every releaseInterval.
func (f *file) touched(n int) {
	if f.sinceRelease += n; f.sinceRelease < releaseInterval {
		return
	}
	f.sinceRelease = 0
	f.mu.Lock() // no transaction may change the mapping
	defer f.mu.Unlock()
	_ = mmap.Release(f.path) // otherwise the system reclaims it under pressure
}

// restart quarantines the file and starts a new one.
func (f *file) restart() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	// Closing a damaged file may hang, and salvage may read it; this is rare.
	f.oldDB, f.db = f.db, nil
	if err := os.Rename(f.path, f.path+quarantineSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("quarantining damaged history file: %w", err)
	}
	db, _, err := openDB(f.path)
	f.db, f.sinceRelease = db, 0
	return err
}

// quarantined returns the file that was quarantined last.
func (f *file) quarantined() *quarantinedFile {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return &quarantinedFile{path: f.path + quarantineSuffix, db: f.oldDB}
}

func (f *file) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.db == nil {
		return nil
	}
	err := f.db.Close()
	f.db = nil
	if err != nil {
		return fmt.Errorf("closing history file: %w", err)
	}
	return nil
}

// size returns the length of the file in bytes.
func (f *file) size() int64 {
	info, err := os.Stat(f.path)
	if err != nil {
		return 0
	}
	return info.Size()
}
