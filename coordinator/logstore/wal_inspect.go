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
	segmentsDir   = "wal" // in the data folder
	segmentSuffix = ".wal"
	segmentNames  = "%020d-%016x" + segmentSuffix // index of the first entry, number
)

// walState is what the segments of a folder that nobody uses hold.
type walState struct {
	list        types.PersistentState
	first, last uint64 // indexes of the log; 0 when it is empty
	// torn is the name of the segment whose last batch was not finished; "": none. It
	// is whole up to tornAt.
	torn   string
	tornAt int64
	// fullAt is where the index of the segment that is appended to begins, if it is
	// full and the list does not say so yet.
	fullAt uint64
}

// inspectWAL looks at all segments of a data folder. The list of segments is what
// raft.db says. All that raft-wal would pass over is found here: it gives a
// DamageError, unless it can be a last batch that was not finished, which is told in
// what is returned.
func inspectWAL(dir string, list types.PersistentState) (walState, error) {
	w := walState{list: list}
	folder := filepath.Join(dir, segmentsDir)
	if err := knownFiles(folder, list); err != nil {
		return w, err
	}
	if err := consistentList(folder, list); err != nil {
		return w, err
	}
	for i, info := range list.Segments {
		inspect := w.sealedSegment
		if i == len(list.Segments)-1 {
			inspect = w.tailSegment
		}
		if err := inspect(folder, info); err != nil {
			return w, err
		}
	}
	if w.last > 0 {
		w.first = list.Segments[0].MinIndex
	}
	if w.first > w.last {
		return w, &DamageError{Path: folder, Detail: fmt.Sprintf("the log ends at entry %d, and it should begin at %d", w.last, w.first)}
	}
	if noted := readNote(folder); noted > w.last {
		return w, &DamageError{Path: folder, Detail: fmt.Sprintf("the log can be read up to entry %d, and entry %d was stored", w.last, noted)}
	}
	return w, nil
}

// knownFiles finds segments that the list cannot have forgotten: it is written before
// the file is made. raft-wal would remove them.
func knownFiles(folder string, list types.PersistentState) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) && len(list.Segments) == 0 {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return &DamageError{Path: folder, Detail: "it held the log, and is not there"}
	}
	if err != nil {
		return fmt.Errorf("looking at the segments of the log: %w", err)
	}
	for _, e := range entries {
		var base, id uint64
		switch {
		case !strings.HasSuffix(e.Name(), segmentSuffix):
			continue
		case !e.Type().IsRegular():
			return &DamageError{Path: filepath.Join(folder, e.Name()), Detail: "it is not a file"}
		}
		if _, err := fmt.Sscanf(e.Name(), segmentNames, &base, &id); err != nil || e.Name() != fmt.Sprintf(segmentNames, base, id) {
			return &DamageError{Path: filepath.Join(folder, e.Name()), Detail: "its name is not that of a segment"}
		}
		if id >= list.NextSegmentID {
			return &DamageError{Path: filepath.Join(folder, e.Name()), Detail: fmt.Sprintf("the list of segments in %s is older", FileName)}
		}
	}
	return nil
}

// consistentList makes sure that the segments follow each other.
func consistentList(folder string, list types.PersistentState) error {
	wrong := func(s types.SegmentInfo, what string) error {
		return &DamageError{Path: segmentPath(folder, s), Detail: "the list of segments says that " + what}
	}
	for i, s := range list.Segments {
		last := i == len(list.Segments)-1
		switch sealed := !s.SealTime.IsZero(); {
		case sealed == last:
			return wrong(s, "it is full and the last, or neither")
		case s.ID >= list.NextSegmentID || s.BaseIndex == 0 || s.MinIndex < s.BaseIndex || i > 0 && s.MinIndex != s.BaseIndex:
			return wrong(s, fmt.Sprintf("it is number %d and begins at entry %d or %d", s.ID, s.BaseIndex, s.MinIndex))
		case sealed && (s.MaxIndex < s.MinIndex || list.Segments[i+1].BaseIndex != s.MaxIndex+1):
			return wrong(s, fmt.Sprintf("it ends at entry %d and the next begins at %d", s.MaxIndex, list.Segments[i+1].BaseIndex))
		}
	}
	return nil
}

func segmentPath(folder string, s types.SegmentInfo) string {
	return filepath.Join(folder, fmt.Sprintf(segmentNames, s.BaseIndex, s.ID))
}

// sealedSegment looks at a segment that is full.
func (w *walState) sealedSegment(folder string, info types.SegmentInfo) error {
	s, damage, err := readSegment(segmentPath(folder, info), info)
	if errors.Is(err, fs.ErrNotExist) {
		damage, err = "it is not there", nil
	}
	switch {
	case err != nil:
		return err
	case damage != "":
	case s.index == 0:
		damage = fmt.Sprintf("it is full, and cannot be read behind its entry %d, at byte %d", s.entries, s.end)
	case s.torn:
		damage = fmt.Sprintf("there is something behind its end at byte %d", s.end)
	case uint64(s.index) != info.IndexStart || //nolint:gosec // a place in a file
		s.entries < info.MaxIndex-info.BaseIndex+1:
		damage = fmt.Sprintf("it has %d entries and an index at %d, and the list of segments says %d and %d",
			s.entries, s.index, info.MaxIndex-info.BaseIndex+1, info.IndexStart)
	default:
		w.last = info.MaxIndex
		return nil
	}
	return &DamageError{Path: segmentPath(folder, info), Detail: damage}
}

// tailSegment looks at the segment that is appended to. Its file is made after the list
// was written, and durable with its first batch.
func (w *walState) tailSegment(folder string, info types.SegmentInfo) error {
	path := segmentPath(folder, info)
	s, damage, err := readSegment(path, info)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case damage == "" && s.torn && s.index > 0:
		damage = fmt.Sprintf("there is something behind its end at byte %d", s.end)
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
		return &DamageError{Path: path, Detail: fmt.Sprintf("the log can be read up to entry %d, and entry %d was stored", w.last, info.MinIndex)}
	}
	w.fullAt = uint64(s.index) //nolint:gosec // a place in a file
	return nil
}

// readSegment reads a segment and says what is damaged in it.
func readSegment(path string, info types.SegmentInfo) (s segmentContent, damage string, err error) {
	stat, err := os.Stat(path)
	if err != nil {
		return s, "", fmt.Errorf("looking at a segment of the log: %w", err)
	}
	if stat.Size() > math.MaxInt32 {
		return s, fmt.Sprintf("it has %d bytes, which no segment has", stat.Size()), nil
	}
	content, err := os.ReadFile(path) //nolint:gosec // a name in our own folder
	if err != nil {
		return s, "", fmt.Errorf("reading a segment of the log: %w", err)
	}
	s, problem := walkSegment(content)
	if problem != nil {
		return s, problem.Error(), nil //nolint:nilerr // it is what is damaged
	}
	if want := (segmentName{base: info.BaseIndex, id: info.ID, codec: info.Codec}); s.end > 0 && s.name != want {
		return s, fmt.Sprintf("it says that it is segment %d from entry %d in form %d, and should be %d from %d in form %d",
			s.name.id, s.name.base, s.name.codec, want.id, want.base, want.codec), nil
	}
	return s, "", nil
}
