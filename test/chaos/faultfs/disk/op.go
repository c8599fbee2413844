package disk

import (
	"encoding/gob"
	"fmt"
	"io"
)

// ID names a file or directory for as long as the disk exists, under whatever name.
type ID uint64

// Root is the directory that is always there.
const Root ID = 1

// Kind says what an Op does.
type Kind int

// The kinds of operations.
const (
	Create   Kind = iota + 1 // a file ID called Name in directory Dir
	Mkdir                    // a directory ID called Name in directory Dir
	Unlink                   // the file Name of directory Dir
	Rmdir                    // the empty directory Name of directory Dir
	Rename                   // Name of directory Dir to ToName of directory ToDir, over what is there
	Write                    // Data at Offset of file ID
	Truncate                 // file ID to length Offset
	Sync                     // all that was done to ID up to and including change UpTo is durable
	Mark                     // nothing; Name says what the program had reached
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
