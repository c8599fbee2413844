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
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/dtask/dtask/internal/mapped"
)

// releaseAfter is after how many bytes of jobs, read or written, the memory of the
// mapped file is given back.
const releaseAfter = 8 << 20

// mapAtOnce is how much of the file's address space is mapped from the start: to map more of
// it later is to copy all that the transaction has changed, and to wait for all who read. What
// is behind the end of the file costs nothing, but on Windows, where the file would get that long.
const mapAtOnce = 1 << 30

// pageSize is that of a new file; one that is there keeps its own. bbolt writes page by page, and
// most of what is written is new jobs, one behind the other: larger pages are fewer writes, and
// less of them stays empty.
const pageSize = 16 << 10

// growBy is by how many bytes more than it needs the file grows.
const growBy = 1 << 20

func mapFirst() int {
	if runtime.GOOS == "windows" || strconv.IntSize < 64 {
		return 0
	}
	return mapAtOnce
}

// asideName is added to the name of a damaged file; one is kept.
const asideName = ".damaged"

// file is the bbolt file. Safe for concurrent use.
type file struct {
	path string

	mu     sync.RWMutex // guards db against being closed under a transaction
	db     *bbolt.DB    // nil once closed
	old    *bbolt.DB    // the damaged file, if it was open when it was set aside
	passed int          // bytes since its memory was given back; of the writer

	committed func() // for tests: called after each transaction that wrote; nil: nothing is
}

var errClosed = errors.New("the history is closed")

// openFile opens or makes the file. It gives a *DamageError for one that cannot be
// read.
func openFile(path string) (*file, error) {
	db, err := openDB(path)
	if err != nil {
		return nil, err
	}
	return &file{path: path, db: db}, nil
}

func openDB(path string) (db *bbolt.DB, err error) {
	err = guard(func() error {
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, FreelistType: bbolt.FreelistMapType, InitialMmapSize: mapFirst(), PageSize: pageSize})
		switch {
		case errors.Is(err, bolterrors.ErrTimeout), errors.Is(err, fs.ErrPermission):
			return fmt.Errorf("opening the history: %w", err)
		case err != nil:
			return damaged("%v", err)
		}
		db.AllocSize = growBy
		return db.Update(func(tx *bbolt.Tx) error {
			for _, name := range buckets {
				if _, err := tx.CreateBucketIfNotExists(name); err != nil {
					return damaged("%v", err)
				}
			}
			if err := createTimes(tx); err != nil {
				return damaged("%v", err)
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return db, nil
}

// guard makes an error of a panic: bbolt has no other word for a page that is not
// what it should be, and a page behind the end of the file is a fault of memory.
func guard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = damaged("%v", p)
		}
	}()
	return do()
}

// view runs f in a transaction that reads.
func (f *file) view(do func(tx *bbolt.Tx) error) error {
	return f.guarded(func(db *bbolt.DB) error { return db.View(do) })
}

// update runs f in a transaction that writes, synced when it returns.
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

// used counts what was read or written, and now and then gives back the memory of the
// pages that were looked at for it.
func (f *file) used(n int) {
	if f.passed += n; f.passed < releaseAfter {
		return
	}
	f.passed = 0
	f.mu.Lock() // no transaction changes the mapping
	defer f.mu.Unlock()
	_ = mapped.Release(f.path) // else the system takes it when it needs it
}

// begin sets the file aside and begins a new one.
func (f *file) begin() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	// It is not closed: a damaged file may hang there, and this is rare. What is good of it
	// may be needed.
	f.old, f.db = f.db, nil
	if err := setAside(f.path); err != nil {
		return err
	}
	db, err := openDB(f.path)
	f.db, f.passed = db, 0
	return err
}

// aside is the file that was set aside last.
func (f *file) aside() *aside {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return &aside{path: f.path + asideName, db: f.old}
}

func setAside(path string) error {
	if err := os.Rename(path, path+asideName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("setting the damaged history aside: %w", err)
	}
	return nil
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
		return fmt.Errorf("closing the history: %w", err)
	}
	return nil
}

// size is the length of the file, in bytes.
func (f *file) size() int64 {
	info, err := os.Stat(f.path)
	if err != nil {
		return 0
	}
	return info.Size()
}
