package disk

import (
	"encoding/gob"
	"fmt"
	"io"
)

// ID identifies a file or directory for the lifetime of the disk, independent of its
// name.
type ID uint64

// Root is the root directory.
const Root ID = 1

// Kind is the kind of an Op.
type Kind int

// The kinds of operations.
const (
	Create   Kind = iota + 1 // a file ID called Name in directory Dir
	Mkdir                    // a directory ID called Name in directory Dir
	Unlink                   // the file Name of directory Dir
	Rmdir                    // the empty directory Name of directory Dir
	Rename                   // Name of directory Dir to ToName of directory ToDir, replacing it
	Write                    // Data at Offset of file ID
	Truncate                 // file ID to length Offset
	Sync                     // makes the changes to ID up to and including UpTo durable
	Mark                     // changes nothing; Name is the point that the program had reached
)

// An Op is one operation on a disk.
type Op struct {
	Kind   Kind
	ID     ID
	Dir    ID
	Name   string
	ToDir  ID
	ToName string
	Offset int64
	Data   []byte
	UpTo   uint64
}

// WriteOps writes a recorded history.
func WriteOps(w io.Writer, ops []Op) error {
	if err := gob.NewEncoder(w).Encode(ops); err != nil {
		return fmt.Errorf("writing the history of a disk: %w", err)
	}
	return nil
}

// ReadOps reads what WriteOps wrote.
func ReadOps(r io.Reader) ([]Op, error) {
	var ops []Op
	if err := gob.NewDecoder(r).Decode(&ops); err != nil {
		return nil, fmt.Errorf("reading the history of a disk: %w", err)
	}
	return ops, nil
}
