package logstore

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/types"

	"github.com/dtask/dtask/internal/durable"
)

// segmentFiles are the files of the segments. It keeps the errors that raft-wal only
// logs when a new segment cannot be made.
type segmentFiles struct {
	*walfs.FS

	list *segmentList
}

// Create implements types.VFS. raft-wal's reserves all blocks of the segment, so that
// a disk without room is found here.
func (f *segmentFiles) Create(dir, name string, size uint64) (types.WritableFile, error) {
	made, err := f.FS.Create(dir, name, size)
	if err == nil {
		err = made.Close()
	}
	if err == nil {
		var file types.WritableFile
		if file, err = f.OpenWriter(dir, name); err == nil {
			return file, nil
		}
	}
	err = fmt.Errorf("making a segment of the log: %w", err)
	f.list.failed(err)
	return nil, err
}

// OpenWriter implements types.VFS.
func (f *segmentFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0) //nolint:gosec // a name in our own folder
	if err != nil {
		return nil, err //nolint:wrapcheck // raft-wal looks whether it is there
	}
	return &segmentFile{File: file, dir: dir, size: fileSize(file)}, nil
}

// segmentFile is a segment that is appended to. raft-wal writes one batch after the
// other, each once and behind the one before.
type segmentFile struct {
	*os.File

	dir    string
	size   int64       // that it was made with
	zeroed int64       // up to here there is what was appended, or zeros that were written
	known  atomic.Bool // the file's name and size are durable
}

// WriteAt implements types.WritableFile.
func (f *segmentFile) WriteAt(batch []byte, at int64) (int, error) {
	end := at + int64(len(batch))
	if end > f.zeroed && len(batch) < zerosBelow {
		f.zeroed = writeAhead(f.File, end, f.size)
	}
	return f.File.WriteAt(batch, at) //nolint:wrapcheck // a Backend's errors are explained by store
}

// Sync implements types.WritableFile. The first one is of all there is to know of the
// file, and of the folder; those that follow leave out the time of the last change,
// which would be one more write of the file system's.
func (f *segmentFile) Sync() error {
	if f.known.Load() {
		return syncData(f.File)
	}
	if err := f.File.Sync(); err != nil {
		return err //nolint:wrapcheck // as above
	}
	if err := durable.SyncDir(f.dir); err != nil {
		return err
	}
	f.known.Store(true)
	return nil
}
