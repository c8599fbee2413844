package disk

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Info describes a file or directory.
type Info struct {
	ID      ID
	Folder  bool
	Name    string // last element of the path
	Size    int64
	Changed time.Time
}

// Stat describes a file or directory.
func (d *Disk) Stat(id ID) (Info, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.nodes[id]
	if n == nil {
		return Info{}, syscall.ENOENT
	}
	return Info{ID: id, Folder: n.folder, Name: n.name, Size: int64(len(n.live)), Changed: n.changed}, 0
}

// Lookup returns the file with a name in a directory.
func (d *Disk) Lookup(dir ID, name string) (ID, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, errno := d.directory(dir)
	if errno != 0 {
		return 0, errno
	}
	id, ok := n.entries[name]
	if !ok {
		return 0, syscall.ENOENT
	}
	return id, 0
}

// List returns the contents of a directory, sorted by name.
func (d *Disk) List(dir ID) ([]Info, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, errno := d.directory(dir)
	if errno != 0 {
		return nil, errno
	}
	var all []Info
	for _, name := range slices.Sorted(maps.Keys(n.entries)) {
		child := d.nodes[n.entries[name]]
		all = append(all, Info{ID: n.entries[name], Folder: child.folder, Name: name, Size: int64(len(child.live)), Changed: child.changed})
	}
	return all, 0
}

// ReadAt reads from a file. The count is short at the end of the file.
func (d *Disk) ReadAt(id ID, into []byte, offset int64) (int, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, errno := d.file(id)
	if errno != 0 {
		return 0, errno
	}
	if offset >= int64(len(n.live)) {
		return 0, 0
	}
	return copy(into, n.live[offset:]), 0
}

// Find returns the file at a path, which has no leading slash.
func (d *Disk) Find(name string) (ID, error) {
	id := Root
	for part := range strings.SplitSeq(path.Clean(name), "/") {
		if part == "." {
			continue
		}
		next, errno := d.Lookup(id, part)
		if errno != 0 {
			return 0, &fs.PathError{Op: "find", Path: name, Err: errno}
		}
		id = next
	}
	return id, nil
}

// Files returns the paths of all files.
func (d *Disk) Files() []string {
	var all []string
	var visit func(dir ID, at string)
	visit = func(dir ID, at string) {
		list, _ := d.List(dir) // empty if it was removed meanwhile
		for _, i := range list {
			if name := path.Join(at, i.Name); i.Folder {
				visit(i.ID, name)
			} else {
				all = append(all, name)
			}
		}
	}
	visit(Root, "")
	return all
}

// Used returns the used space in bytes.
func (d *Disk) Used() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used
}

// Needs returns the additional space that a write needs, in bytes.
func (d *Disk) Needs(id ID, offset, length int64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, errno := d.file(id)
	if errno != 0 {
		return 0
	}
	need := int64(0)
	for b := offset / block; b*block < offset+length; b++ {
		if !n.written[b] {
			need += block
		}
	}
	return need
}

// Export writes all files to a directory of another file system, which it creates if
// necessary.
func (d *Disk) Export(to string) error {
	return d.export(Root, to)
}

func (d *Disk) export(dir ID, to string) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return fmt.Errorf("exporting a disk: %w", err)
	}
	list, _ := d.List(dir)
	for _, i := range list {
		at := filepath.Join(to, i.Name)
		if i.Folder {
			if err := d.export(i.ID, at); err != nil {
				return err
			}
			continue
		}
		content := make([]byte, i.Size)
		n, _ := d.ReadAt(i.ID, content, 0)
		if err := os.WriteFile(at, content[:n], 0o600); err != nil {
			return fmt.Errorf("exporting a disk: %w", err)
		}
	}
	return nil
}
