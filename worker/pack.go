package worker

import (
	"archive/tar"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dtask/dtask/worker/process"
)

// Bounds of a packed directory.
const (
	maxPackedEntries = 10_000
	maxPackedBytes   = 1 << 30 // contents of all its files
)

// errDirChanged is returned if files appeared, vanished or grew while they were
// read; the caller should try again.
var errDirChanged = errors.New("directory changed while it was read")

// pack writes the contents of a directory as a deflated tar archive: regular
// files and directories in the order of their paths, so that equal directories
// yield equal archives. It never leaves the directory, whatever it contains. Files
// are opened with the permissions of a user: one could be a hard link to another's.
func pack(w io.Writer, dir string, user *process.User) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("opening directory: %w", err)
	}
	defer func() { _ = root.Close() }() // read only
	z, err := flate.NewWriter(w, flate.BestSpeed)
	if err != nil {
		return fmt.Errorf("packing: %w", err)
	}
	p := packer{root: root, user: user, out: tar.NewWriter(z)}
	err = fs.WalkDir(root.FS(), ".", p.entry)
	if errors.Is(err, fs.ErrNotExist) {
		return errDirChanged
	}
	if err != nil {
		return err
	}
	if err := errors.Join(p.out.Close(), z.Close()); err != nil {
		return fmt.Errorf("packing: %w", err)
	}
	return nil
}

type packer struct {
	root    *os.Root
	user    *process.User
	out     *tar.Writer
	entries int
	bytes   int64
}

func (p *packer) entry(name string, d fs.DirEntry, err error) error {
	if err != nil || name == "." {
		return err
	}
	if p.entries++; p.entries > maxPackedEntries {
		return fmt.Errorf("directory has more than %d entries", maxPackedEntries)
	}
	switch {
	case d.IsDir():
		info, err := d.Info()
		if err != nil {
			return err //nolint:wrapcheck // has the path
		}
		return p.head(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/"}, info)
	case d.Type().IsRegular():
		return p.file(name)
	default:
		return fmt.Errorf("%s is neither a file nor a directory", name)
	}
}

func (p *packer) head(h *tar.Header, info fs.FileInfo) error {
	h.Mode, h.ModTime = int64(info.Mode().Perm()), info.ModTime().Truncate(time.Second)
	if err := p.out.WriteHeader(h); err != nil {
		return fmt.Errorf("packing %s: %w", h.Name, err)
	}
	return nil
}

func (p *packer) file(name string) error {
	var file *os.File
	err := p.user.Do(func() (err error) {
		file, err = p.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // it may be a pipe by now
		return err
	})
	if err != nil {
		return err //nolint:wrapcheck // has the path
	}
	defer func() { _ = file.Close() }() // read only
	info, err := file.Stat()
	if err != nil {
		return err //nolint:wrapcheck // has the path
	}
	if !info.Mode().IsRegular() {
		return errDirChanged
	}
	if p.bytes += info.Size(); p.bytes > maxPackedBytes {
		return fmt.Errorf("directory has more than %d bytes", maxPackedBytes)
	}
	if err := p.head(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: info.Size()}, info); err != nil {
		return err
	}
	if n, err := io.CopyN(p.out, file, info.Size()); err != nil {
		if errors.Is(err, io.EOF) && n < info.Size() {
			return errDirChanged
		}
		return fmt.Errorf("packing %s: %w", name, err)
	}
	return nil
}

// unpack creates a directory, which must not exist, from an archive of pack. It
// never leaves the directory, whatever the archive contains. Everything belongs to
// the user in the end. After an error, the directory may be incomplete.
func unpack(r io.Reader, dir string, user *process.User) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("creating directory: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("opening directory: %w", err)
	}
	defer func() { _ = root.Close() }() // all files are closed already
	archive := tar.NewReader(flate.NewReader(r))
	size := int64(0)
	for entries := 0; ; entries++ {
		h, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return ownTree(root, dir, user)
		case err != nil:
			return fmt.Errorf("unpacking: %w", err)
		case entries >= maxPackedEntries || h.Size < 0 || h.Size > maxPackedBytes-size:
			return errors.New("archive too large")
		}
		size += h.Size
		if err := unpackEntry(root, h, archive); err != nil {
			return err
		}
	}
}

// ownTree makes a user the owner of a directory with its contents, which no other user
// could change so far.
func ownTree(root *os.Root, dir string, user *process.User) error {
	if user == nil {
		return nil
	}
	err := fs.WalkDir(root.FS(), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		return root.Lchown(name, int(user.UID), int(user.GID))
	})
	if err == nil {
		err = user.Own(dir)
	}
	if err != nil {
		return fmt.Errorf("unpacking for user %s: %w", user.Name, err)
	}
	return nil
}

func unpackEntry(root *os.Root, h *tar.Header, contents io.Reader) error {
	name := path.Clean(h.Name)
	if !filepath.IsLocal(name) {
		return fmt.Errorf("invalid path %q in archive", h.Name)
	}
	mode := fs.FileMode(h.Mode).Perm() //nolint:gosec // only nine bits are used
	switch h.Typeflag {
	case tar.TypeDir:
		if err := root.MkdirAll(name, mode|0o700); err != nil {
			return fmt.Errorf("unpacking: %w", err)
		}
		return nil
	case tar.TypeReg:
	default:
		return fmt.Errorf("%q in archive is neither a file nor a directory", h.Name)
	}
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o600)
	if err != nil {
		return fmt.Errorf("unpacking: %w", err)
	}
	_, err = io.CopyN(file, contents, h.Size)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("unpacking %s: %w", name, err)
	}
	if err := root.Chtimes(name, h.ModTime, h.ModTime); err != nil {
		return fmt.Errorf("unpacking: %w", err)
	}
	return nil
}
