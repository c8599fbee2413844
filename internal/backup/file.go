package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/dtask/dtask/internal/durable"
)

// A File is a backup that gets its name when it is complete and was read back, so that every
// backup under its name can be restored. Not safe for concurrent use.
type File struct{ *durable.File }

// Saved describes a backup that was read back.
type Saved struct {
	Manifest

	Totals Totals
	SHA256 string // of the file, in hexadecimal
}

// Check reads the state of a backup that was written, and returns why it is not one. nil:
// only the checksums are checked.
type Check func(state io.Reader) error

// CreateFile begins a backup under a temporary name that begins with prefix, in the directory
// of path, with mode 0600. The caller calls Discard.
func CreateFile(path, prefix string) (*File, error) {
	file, err := durable.CreateFile(path, prefix)
	if err != nil {
		return nil, fmt.Errorf("creating %s: %w", path, durable.Cause(err))
	}
	return &File{file}, nil
}

// Keep reads the file back, and gives it its name if it is complete. Both are durable when it
// returns.
func (f *File) Keep(check Check) (saved Saved, err error) {
	if err = f.Sync(); err == nil {
		saved, err = f.Reread(check)
		if err != nil {
			return saved, err
		}
		err = f.File.Keep()
	}
	if err != nil {
		return saved, fmt.Errorf("writing %s: %w", f.Path(), durable.Cause(err))
	}
	return saved, nil
}

// Reread reads the whole file, and describes it if it is complete.
func (f *File) Reread(check Check) (saved Saved, err error) {
	sum := sha256.New()
	_, err = f.Seek(0, io.SeekStart)
	var r *Reader
	if err == nil {
		r, err = NewReader(io.TeeReader(f, sum))
	}
	if err == nil && check != nil {
		err = check(r.State())
	}
	if err == nil {
		saved.Totals, err = r.Finish(nil)
	}
	if err != nil {
		return saved, fmt.Errorf("reading %s back: %w", f.Path(), durable.Cause(err))
	}
	saved.Manifest, saved.SHA256 = r.Manifest(), hex.EncodeToString(sum.Sum(nil))
	return saved, nil
}
