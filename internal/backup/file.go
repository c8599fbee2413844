package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dtask/dtask/internal/durable"
)

// A File is a backup that gets its name when it is complete and was read back, so that every
// backup under its name can be restored. It implements io.Writer. Not safe for concurrent
// use.
type File struct {
	path string
	temp *os.File
}

// Saved describes a backup that was read back.
type Saved struct {
	Manifest

	Totals Totals
	SHA256 string // of the file, in hexadecimal
}

// Check reads the state of a backup that was written, and returns why it is not one. nil:
// only the checksums are checked.
type Check func(state io.Reader) error

// CreateFile begins a backup under a temporary name, in the directory of path, with mode
// 0600. The temporary name begins with prefix. The caller calls Discard.
func CreateFile(path, prefix string) (*File, error) {
	temp, err := os.CreateTemp(filepath.Dir(path), prefix+"*")
	if err != nil {
		return nil, fmt.Errorf("creating %s: %w", path, withoutPath(err))
	}
	return &File{path: path, temp: temp}, nil
}

// Path returns the name that the file gets.
func (f *File) Path() string { return f.path }

// Restart empties the file: another attempt begins.
func (f *File) Restart() error {
	_, err := f.temp.Seek(0, io.SeekStart)
	if err == nil {
		err = f.temp.Truncate(0)
	}
	return err
}

// Write implements io.Writer.
func (f *File) Write(b []byte) (int, error) { return f.temp.Write(b) }

// Keep reads the file back, and gives it its name if it is complete. Both are durable when it
// returns.
func (f *File) Keep(check Check) (Saved, error) {
	if err := f.temp.Sync(); err != nil {
		return Saved{}, fmt.Errorf("writing %s: %w", f.path, withoutPath(err))
	}
	saved, err := f.Reread(check)
	if err != nil {
		return saved, err
	}
	err = f.temp.Close()
	if err == nil {
		err = os.Rename(f.temp.Name(), f.path)
	}
	if err != nil {
		return saved, fmt.Errorf("writing %s: %w", f.path, withoutPath(err))
	}
	f.temp = nil
	return saved, durable.SyncDir(filepath.Dir(f.path))
}

// Reread reads the whole file, and describes it if it is complete.
func (f *File) Reread(check Check) (saved Saved, err error) {
	sum := sha256.New()
	_, err = f.temp.Seek(0, io.SeekStart)
	var r *Reader
	if err == nil {
		r, err = NewReader(io.TeeReader(f.temp, sum))
	}
	if err == nil && check != nil {
		err = check(r.State())
	}
	if err == nil {
		saved.Totals, err = r.Finish(nil)
	}
	if err != nil {
		return saved, fmt.Errorf("reading %s back: %w", f.path, withoutPath(err))
	}
	saved.Manifest, saved.SHA256 = r.Manifest(), hex.EncodeToString(sum.Sum(nil))
	return saved, nil
}

// Discard removes the temporary file unless it was kept.
func (f *File) Discard() {
	if f.temp != nil {
		_ = errors.Join(f.temp.Close(), os.Remove(f.temp.Name())) // nothing is lost
	}
}

// withoutPath removes the path of a temporary file from an error.
func withoutPath(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	if l, ok := errors.AsType[*os.LinkError](err); ok {
		return l.Err
	}
	return err
}
