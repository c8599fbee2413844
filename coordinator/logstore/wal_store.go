package logstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftwal "github.com/hashicorp/raft-wal"
	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"github.com/dtask/dtask/internal/durable"
)

// segmentSize is the size of a new segment, and so the disk space of an empty log. A
// full segment costs two transactions in raft.db.
const segmentSize = 16 << 20

// walStore is a Backend that stores the entries in segments of raft-wal, and term, vote
// and the list of segments in raft.db.
type walStore struct {
	Backend // raft.db

	log  *raftwal.WAL
	list *segmentList
	mark *mark
}

// openWAL opens the segments of a data directory that was inspected. First it completes
// what a crash interrupted, which raft-wal does not do.
func openWAL(dataDir string, db Backend, contents *Contents, size int, log hclog.Logger) (_ *walStore, err error) {
	w := &walStore{Backend: db, list: &segmentList{db: db, path: filepath.Join(dataDir, FileName)}}
	dir := filepath.Join(dataDir, segmentsDir)
	if err := durable.MakeDir(dir); err != nil {
		return nil, err
	}
	if err := contents.wal.eraseTorn(); err != nil {
		return nil, err
	}
	list := contents.wal.list
	if contents.wal.fullAt > 0 {
		list = sealTail(contents.wal, size, time.Now())
	}
	if contents.wal.fullAt > 0 || len(list.Segments) == 0 && list.NextSegmentID == 0 {
		if err := w.list.CommitState(list); err != nil {
			return nil, err
		}
	}
	if w.mark, err = openMark(dir, markName, contents.Last); err != nil {
		return nil, err
	}
	files := &segmentFiles{FS: walfs.New(), list: w.list}
	w.log, err = raftwal.Open(dir, raftwal.WithMetaStore(w.list), raftwal.WithSegmentSize(size),
		raftwal.WithSegmentFiler(segment.NewFiler(dir, files)), raftwal.WithLogger(log))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the segments of the log: %w", err), w.mark.close())
	}
	return w, nil
}

// eraseTorn erases a batch that was never finished. raft-wal would leave it after the
// end of the log and overwrite a part of it: the rest could later be read as something
// else.
func (w *walState) eraseTorn() error {
	if w.torn == "" {
		return nil
	}
	file, err := os.OpenFile(w.torn, os.O_RDWR, 0) //nolint:gosec // a name in the data directory
	if err != nil {
		return fmt.Errorf("removing an unfinished batch: %w", err)
	}
	info, err := file.Stat()
	if err == nil {
		err = file.Truncate(w.tornAt)
	}
	if err == nil {
		err = file.Truncate(info.Size()) // zeros, as after every end
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("removing an unfinished batch: %w", err)
	}
	return nil
}

// sealTail returns the list of segments after the last one became full. raft-wal seals
// it in a goroutine of its own; if the process exits before, raft-wal appends to the
// full segment when it opens it again, and fails.
func sealTail(w walState, size int, now time.Time) types.PersistentState {
	list := types.PersistentState{NextSegmentID: w.list.NextSegmentID + 1}
	list.Segments = append(list.Segments, w.list.Segments...)
	full := &list.Segments[len(list.Segments)-1]
	full.SealTime, full.MaxIndex, full.IndexStart = now, w.last, w.fullAt
	list.Segments = append(list.Segments, types.SegmentInfo{
		ID: w.list.NextSegmentID, BaseIndex: w.last + 1, MinIndex: w.last + 1, Codec: full.Codec,
		CreateTime: now, SizeLimit: uint32(size), //nolint:gosec // segmentSize
	})
	return list
}

// FirstIndex implements Backend.
func (w *walStore) FirstIndex() (uint64, error) {
	return w.log.FirstIndex() //nolint:wrapcheck // Store explains a Backend's errors
}

// LastIndex implements Backend.
func (w *walStore) LastIndex() (uint64, error) {
	return w.log.LastIndex() //nolint:wrapcheck // as above
}

// GetLog implements Backend. raft-wal still finds entries that were deleted from the
// front of the last segment.
func (w *walStore) GetLog(index uint64, log *raft.Log) error {
	first, err := w.log.FirstIndex()
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	if index < first || first == 0 {
		return raft.ErrLogNotFound
	}
	return w.log.GetLog(index, log) //nolint:wrapcheck // as above
}

// StoreLogs implements Backend: one write and one sync.
func (w *walStore) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	if err := w.log.StoreLogs(logs); err != nil {
		if cause := w.list.err(); cause != nil {
			return cause
		}
		return err //nolint:wrapcheck // as above
	}
	return w.mark.raise(logs[len(logs)-1].Index)
}

// DeleteRange implements Backend. It stores a list without the entries in one
// transaction, so it needs no steps.
func (w *walStore) DeleteRange(first, last uint64) error {
	end, err := w.log.LastIndex()
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	if last >= end && first <= end {
		lowest, err := w.log.FirstIndex()
		if err != nil {
			return err //nolint:wrapcheck // as above
		}
		remaining := first - 1
		if first <= lowest {
			remaining = 0
		}
		if err := w.mark.lower(remaining); err != nil {
			return err
		}
	}
	return w.log.DeleteRange(first, last) //nolint:wrapcheck // as above
}

// Close implements Backend.
func (w *walStore) Close() error {
	return errors.Join(w.log.Close(), w.mark.close(), w.Backend.Close())
}
