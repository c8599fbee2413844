package logstore

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/raft-wal/types"
)

const (
	segmentsDir   = "wal" // in the data directory
	segmentSuffix = ".wal"
	segmentNames  = "%020d-%016x" + segmentSuffix // index of the first entry, segment id
)

// walState is what the segments of a data directory contain.
type walState struct {
	list        types.PersistentState
	first, last uint64 // indexes of the log; 0 if it is empty
	// torn is the path of the segment whose last batch was not finished; "" if none is.
	// It is complete up to tornAt.
	torn   string
	tornAt int64
	// fullAt is where the index of the last segment starts, if the segment is full and
	// not yet sealed in the list.
	fullAt uint64
}

// inspectWAL reads all segments of a data directory. The list of segments is from
// raft.db. It detects everything that raft-wal would silently skip, and returns a
// DamageError, unless it may be a last batch that was not finished.
func inspectWAL(dataDir string, list types.PersistentState) (walState, error) {
	w := walState{list: list}
	dir := filepath.Join(dataDir, segmentsDir)
	if err := checkFiles(dir, list); err != nil {
		return w, err
	}
	if err := checkList(dir, list); err != nil {
		return w, err
	}
	for i, info := range list.Segments {
		inspect := w.inspectSealed
		if i == len(list.Segments)-1 {
			inspect = w.inspectTail
		}
		if err := inspect(segmentPath(dir, info), info); err != nil {
			return w, err
		}
	}
	if w.last > 0 {
		w.first = list.Segments[0].MinIndex
	}
	if w.first > w.last {
		return w, &DamageError{Path: dir, Detail: fmt.Sprintf("the log ends at entry %d, should start at %d", w.last, w.first)}
	}
	return w, w.tail(dir).check()
}

// tail returns how the last batch was found.
func (w *walState) tail(dir string) tail {
	t := tail{path: dir, unit: "entry", unreadable: w.torn, last: w.last}
	t.marked, t.hasMark = readMark(dir, markName)
	return t
}

// unreadable returns the DamageError of a log that ends before its last stored entry.
func unreadable(path string, last, stored uint64) error {
	return &DamageError{Path: path, Detail: fmt.Sprintf("the log can be read up to entry %d, but entry %d was stored", last, stored)}
}

// checkFiles detects segments that are not in the list, which raft-wal would delete:
// the list is written before the file is created.
func checkFiles(dir string, list types.PersistentState) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) && len(list.Segments) == 0 {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return &DamageError{Path: dir, Detail: "the log existed, but its directory is missing"}
	}
	if err != nil {
		return fmt.Errorf("inspecting the segments of the log: %w", err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), segmentSuffix) {
			continue
		}
		var base, id uint64
		_, err := fmt.Sscanf(e.Name(), segmentNames, &base, &id)
		var problem string
		switch {
		case !e.Type().IsRegular():
			problem = "it is not a file"
		case err != nil || e.Name() != fmt.Sprintf(segmentNames, base, id):
			problem = "its name is not that of a segment"
		case id >= list.NextSegmentID:
			problem = fmt.Sprintf("the list of segments in %s is older", FileName)
		default:
			continue
		}
		return &DamageError{Path: filepath.Join(dir, e.Name()), Detail: problem}
	}
	return nil
}

// checkList verifies that the segments are consecutive.
func checkList(dir string, list types.PersistentState) error {
	for i, s := range list.Segments {
		isLast := i == len(list.Segments)-1
		var problem string
		switch sealed := !s.SealTime.IsZero(); {
		case sealed == isLast:
			problem = fmt.Sprintf("it has sealed=%t, last=%t", sealed, isLast)
		case s.ID >= list.NextSegmentID || s.BaseIndex == 0 || s.MinIndex < s.BaseIndex || i > 0 && s.MinIndex != s.BaseIndex:
			problem = fmt.Sprintf("it has id %d and starts at entry %d or %d", s.ID, s.BaseIndex, s.MinIndex)
		case sealed && (s.MaxIndex < s.MinIndex || list.Segments[i+1].BaseIndex != s.MaxIndex+1):
			problem = fmt.Sprintf("it ends at entry %d and the next one starts at %d", s.MaxIndex, list.Segments[i+1].BaseIndex)
		default:
			continue
		}
		return &DamageError{Path: segmentPath(dir, s), Detail: "inconsistent list of segments: " + problem}
	}
	return nil
}

func segmentPath(dir string, s types.SegmentInfo) string {
	return filepath.Join(dir, fmt.Sprintf(segmentNames, s.BaseIndex, s.ID))
}

// inspectSealed reads a segment that is full.
func (w *walState) inspectSealed(path string, info types.SegmentInfo) error {
	s, damage, err := readSegment(path, info)
	if errors.Is(err, fs.ErrNotExist) {
		damage, err = "it is missing", nil
	}
	switch {
	case err != nil:
		return err
	case damage != "":
	case s.index == 0:
		damage = fmt.Sprintf("it is full, but cannot be read after its entry %d, at byte %d", s.entries, s.end)
	case s.torn:
		damage = fmt.Sprintf("it has data after its end at byte %d", s.end)
	case uint64(s.index) != info.IndexStart || //nolint:gosec // an offset in a file
		s.entries < info.MaxIndex-info.BaseIndex+1:
		damage = fmt.Sprintf("it has %d entries and an index at %d; the list of segments has %d and %d",
			s.entries, s.index, info.MaxIndex-info.BaseIndex+1, info.IndexStart)
	default:
		w.last = info.MaxIndex
		return nil
	}
	return &DamageError{Path: path, Detail: damage}
}

// inspectTail reads the segment that is appended to. Its file is created after the list
// is written, and durable with its first batch.
func (w *walState) inspectTail(path string, info types.SegmentInfo) error {
	s, damage, err := readSegment(path, info)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case damage == "" && s.torn && s.index > 0:
		damage = fmt.Sprintf("it has data after its end at byte %d", s.end)
	}
	if damage != "" {
		return &DamageError{Path: path, Detail: damage}
	}
	if s.torn {
		w.torn, w.tornAt = path, int64(s.end)
	}
	if s.entries > 0 {
		w.last = info.BaseIndex + s.entries - 1
	}
	if info.MinIndex > max(w.last, info.BaseIndex) {
		return unreadable(path, w.last, info.MinIndex)
	}
	w.fullAt = uint64(s.index) //nolint:gosec // an offset in a file
	return nil
}

// readSegment reads a segment and returns what is damaged in it.
func readSegment(path string, info types.SegmentInfo) (s segmentContent, damage string, err error) {
	stat, err := os.Stat(path)
	if err != nil {
		return s, "", fmt.Errorf("inspecting a segment of the log: %w", err)
	}
	if stat.Size() > math.MaxInt32 {
		return s, fmt.Sprintf("it has %d bytes, more than any segment", stat.Size()), nil
	}
	content, err := os.ReadFile(path) //nolint:gosec // a name in the data directory
	if err != nil {
		return s, "", fmt.Errorf("reading a segment of the log: %w", err)
	}
	s, problem := parseSegment(content)
	if problem != nil {
		return s, problem.Error(), nil //nolint:nilerr // the damage
	}
	if want := (segmentID{base: info.BaseIndex, id: info.ID, codec: info.Codec}); s.end > 0 && s.segment != want {
		return s, fmt.Sprintf("it is segment %d from entry %d with codec %d, should be %d from %d with codec %d",
			s.segment.id, s.segment.base, s.segment.codec, want.id, want.base, want.codec), nil
	}
	return s, "", nil
}
