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

// segmentSize is how many bytes a segment is made with, and so what an empty log costs.
// A segment that is full costs two transactions in raft.db.
const segmentSize = 16 << 20

// walStore is a Backend that keeps the entries in segments of raft-wal, and term, vote
// and the list of the segments in raft.db.
type walStore struct {
	Backend // raft.db

	log  *raftwal.WAL
	list *segmentList
	note *note
}

// openWAL opens the segments of a data folder that was looked at. It first does what
// raft-wal leaves undone after a crash.
func openWAL(dir string, db Backend, contents *Contents, size int, log hclog.Logger) (_ *walStore, err error) {
	w := &walStore{Backend: db, list: &segmentList{db: db, path: filepath.Join(dir, FileName)}}
	folder := filepath.Join(dir, segmentsDir)
	if err := durable.MakeDir(folder); err != nil {
		return nil, err
	}
	if err := contents.wal.cutTorn(); err != nil {
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
	if w.note, err = openNote(folder, contents.Last); err != nil {
		return nil, err
	}
	files := &segmentFiles{FS: walfs.New(), list: w.list}
	w.log, err = raftwal.Open(folder, raftwal.WithMetaStore(w.list), raftwal.WithSegmentSize(size),
		raftwal.WithSegmentFiler(segment.NewFiler(folder, files)), raftwal.WithLogger(log))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the segments of the log: %w", err), w.note.close())
	}
	return w, nil
}

// cutTorn removes what was never finished. raft-wal would leave it behind the end, and
// write over some of it: the rest could later be read as what it is not.
func (w *walState) cutTorn() error {
	if w.torn == "" {
		return nil
	}
	file, err := os.OpenFile(w.torn, os.O_RDWR, 0) //nolint:gosec // a name in our own folder
	if err != nil {
		return fmt.Errorf("removing a batch that was not finished: %w", err)
	}
	info, err := file.Stat()
	if err == nil {
		err = file.Truncate(w.tornAt)
	}
	if err == nil {
		err = file.Truncate(info.Size()) // zeros, as behind every end
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("removing a batch that was not finished: %w", err)
	}
	return nil
}

// sealTail is the list after the segment that is appended to became full. raft-wal
// makes it so in a goroutine of its own; if the process ends before that, it appends to
// the full segment when it is opened again, and fails.
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
	return w.log.FirstIndex() //nolint:wrapcheck // a Backend's errors are explained by store
}

// LastIndex implements Backend.
func (w *walStore) LastIndex() (uint64, error) {
	return w.log.LastIndex() //nolint:wrapcheck // as above
}

// GetLog implements Backend. raft-wal goes on to find entries that were removed from
// the front of the segment that it appends to.
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
	return w.note.stored(logs[len(logs)-1].Index)
}

// DeleteRange implements Backend. One transaction writes a list without the entries, so
// that it is not done in parts.
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
		left := first - 1
		if first <= lowest {
			left = 0
		}
		if err := w.note.below(left); err != nil {
			return err
		}
	}
	return w.log.DeleteRange(first, last) //nolint:wrapcheck // as above
}

// Close implements Backend.
func (w *walStore) Close() error {
	return errors.Join(w.log.Close(), w.note.close(), w.Backend.Close())
}
