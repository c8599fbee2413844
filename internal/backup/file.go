package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"

	"filippo.io/age"

	"github.com/dtask/dtask/internal/durable"
)

// A File is a backup that gets its name when it is complete and was read back, so that every
// backup under its name can be restored. Not safe for concurrent use.
type File struct {
	*durable.File

	// A file that is encrypted can also be read with own, which is in no file: to read it
	// back.
	to  Recipients // with that of own; empty: it is not encrypted
	own age.Identity
	enc io.WriteCloser
}

// Saved describes a backup that was read back.
type Saved struct {
	Manifest

	Totals    Totals
	SHA256    string // of the file, in hexadecimal
	Encrypted bool
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
	return &File{File: file}, nil
}

// EncryptTo makes the file one that recipients can read, and only they; without any it
// changes nothing. It is called before anything is written.
func (f *File) EncryptTo(to Recipients) error { return f.encryptTo(to, nil) }

// encryptTo is EncryptTo for a file that says without a key what it is, unless public is nil.
func (f *File) encryptTo(to Recipients, public *Manifest) error {
	if len(to) == 0 {
		return nil
	}
	own, recipient, err := to.ownIdentity()
	if err == nil && public != nil {
		recipient, err = announce(recipient, *public)
	}
	if err != nil {
		return err
	}
	f.own, f.to = own, append(slices.Clone(to), recipient)
	f.enc = Encrypt(f.File, f.to)
	return nil
}

// Restart empties the file: another attempt begins.
func (f *File) Restart() error {
	if f.enc != nil {
		f.enc = Encrypt(f.File, f.to)
	}
	return f.File.Restart()
}

// Write implements io.Writer.
func (f *File) Write(b []byte) (int, error) {
	if f.enc != nil {
		return f.enc.Write(b)
	}
	return f.File.Write(b)
}

// Keep reads the file back, and gives it its name if it is complete. Both are durable when it
// returns.
func (f *File) Keep(check Check) (saved Saved, err error) {
	if err = f.finish(); err == nil {
		err = f.Sync()
	}
	if err == nil {
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

// finish writes the end of what is encrypted. Nothing can be written afterwards, before
// Restart.
func (f *File) finish() error {
	if f.enc == nil {
		return nil
	}
	return f.enc.Close()
}

// Reread reads the whole file, and describes it if it is complete.
func (f *File) Reread(check Check) (saved Saved, err error) {
	sum := sha256.New()
	size, err := f.Seek(0, io.SeekEnd)
	var r *Reader
	if err == nil {
		r, saved.Encrypted, err = f.reader(sum)
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
	digest := saved.Totals.Whole[:]
	if saved.Encrypted {
		digest = sum.Sum(nil)
	}
	saved.Manifest, saved.SHA256 = r.Manifest(), hex.EncodeToString(digest)
	saved.Totals.Bytes = uint64(size) //nolint:gosec // not negative
	return saved, nil
}

// reader reads the file from its beginning. What it reads of an encrypted one is written to
// sum; the Reader of another one hashes the same bytes.
func (f *File) reader(sum io.Writer) (r *Reader, encrypted bool, err error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, false, err
	}
	from := io.Reader(f)
	if f.enc != nil {
		from = io.TeeReader(f, sum)
	}
	plain, encrypted, err := Decrypt(from, f.identities())
	if err != nil {
		return nil, encrypted, err
	}
	r, err = NewReader(plain)
	return r, encrypted, err
}

// identities are those that can read the file back.
func (f *File) identities() Identities {
	if f.own == nil {
		return nil
	}
	return Identities{f.own}
}
