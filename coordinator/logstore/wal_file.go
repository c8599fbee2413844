package logstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/types"

	"github.com/dtask/dtask/internal/durable"
)

// segmentFiles creates and opens the files of segments. It keeps the errors that
// raft-wal only logs when it cannot create a segment.
type segmentFiles struct {
	*walfs.FS

	list *segmentList
}

// Create implements types.VFS. raft-wal reserves all blocks of the segment, so a full
// disk is detected here.
func (f *segmentFiles) Create(dir, name string, size uint64) (types.WritableFile, error) {
	created, err := f.FS.Create(dir, name, size)
	if err == nil {
		err = created.Close()
	}
	if err == nil {
		var file types.WritableFile
		if file, err = f.OpenWriter(dir, name); err == nil {
			return file, nil
		}
	}
	err = fmt.Errorf("creating a segment of the log: %w", err)
	f.list.fail(err)
	return nil, err
}

// OpenWriter implements types.VFS.
func (f *segmentFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0) //nolint:gosec // a name in the data directory
	if err != nil {
		return nil, err //nolint:wrapcheck // raft-wal checks whether the file exists
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &segmentFile{File: file, dir: dir, size: info.Size()}, nil
}

// segmentFile is the segment that is appended to. raft-wal writes each batch once,
// after the one before.
type segmentFile struct {
	*os.File

	dir     string
	size    int64       // when it was created
	written int64       // batches, or zeros ahead of them, are written up to here
	durable atomic.Bool // the file's name and size are durable
}

// WriteAt implements types.WritableFile.
func (f *segmentFile) WriteAt(batch []byte, at int64) (int, error) {
	end := at + int64(len(batch))
	if end > f.written && len(batch) < maxPrezeroedBatch {
		f.written = prezero(f.File, end, f.size)
	}
	return f.File.WriteAt(batch, at) //nolint:wrapcheck // Store explains a Backend's errors
}

// Sync implements types.WritableFile. The first sync includes all metadata of the file,
// and the directory. Later ones omit the modification time, which would cost the file
// system another write.
func (f *segmentFile) Sync() error {
	if f.durable.Load() {
		return syncData(f.File)
	}
	if err := f.File.Sync(); err != nil {
		return err //nolint:wrapcheck // as above
	}
	if err := durable.SyncDir(f.dir); err != nil {
		return err
	}
	f.durable.Store(true)
	return nil
}
