package logs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A segment is a file of records. Only the last one is active: it is written to, and its
// index is in memory. That of a sealed segment is there too if it could not be written.
type segment struct {
	no       uint64
	path     string
	size     int64
	attempts int
	newestMS int64

	file     *os.File           // of the active segment
	oldestMS int64              // of the active segment
	last     map[Attempt]uint32 // offset of each attempt's last record; nil if a file has it
}

const (
	segmentSuffix = ".seg"
	indexSuffix   = ".idx"
)

func segmentPath(dir string, no uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%016d%s", no, segmentSuffix))
}

// segmentNumber returns the number in the name of a segment.
func segmentNumber(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok || len(digits) != 16 {
		return 0, false
	}
	no, err := strconv.ParseUint(digits, 10, 64)
	return no, err == nil && no > 0
}

func (s *segment) indexPath() string { return strings.TrimSuffix(s.path, segmentSuffix) + indexSuffix }

// cost is the size of the segment and its index, in bytes.
func (s *segment) cost() int64 { return s.size + int64(indexHead+s.attempts*indexEntry+4) }

// createSegment creates the file of a new active segment.
func createSegment(dir string, no uint64) (*segment, error) {
	path := segmentPath(dir, no)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // below the work directory
	if err != nil {
		return nil, fmt.Errorf("creating a segment of logs: %w", err)
	}
	return &segment{no: no, path: path, file: file, last: make(map[Attempt]uint32)}, nil
}

// append writes a record and returns its position. After an error nothing of it counts.
func (s *segment) append(r *record, encoded []byte) (position, error) {
	at := position{s.no, uint32(s.size)} //nolint:gosec // a segment is far below 4 GiB
	if _, err := s.file.WriteAt(encoded, s.size); err != nil {
		return position{}, fmt.Errorf("writing logs: %w", err)
	}
	if s.size == 0 {
		s.oldestMS = r.timeMS
	}
	s.size += int64(len(encoded))
	s.last[r.of] = at.offset
	s.attempts, s.newestMS = len(s.last), max(s.newestMS, r.timeMS)
	return at, nil
}

// seal writes the index and closes the file. A segment without an index is scanned when
// the store is opened, so that a failure costs time only.
func (s *segment) seal() error {
	err := os.WriteFile(s.indexPath()+".new", encodeIndex(s.last, s.newestMS), 0o600)
	if err == nil {
		err = os.Rename(s.indexPath()+".new", s.indexPath())
	}
	if s.file != nil {
		err = errors.Join(err, s.file.Close())
	}
	s.file = nil
	if err == nil {
		s.last = nil
	}
	if err != nil {
		return fmt.Errorf("sealing a segment of logs: %w", err)
	}
	return nil
}

// openSegment reads what is known of a segment of an earlier process: its index or, if
// that is missing or damaged, its records. What follows the last whole record is ignored.
func openSegment(dir string, no uint64) (*segment, error) {
	s := &segment{no: no, path: segmentPath(dir, no)}
	info, err := os.Stat(s.path)
	if err != nil {
		return nil, fmt.Errorf("opening a segment of logs: %w", err)
	}
	s.size = info.Size()
	if index, err := os.ReadFile(s.indexPath()); err == nil {
		if s.attempts, s.newestMS, err = checkIndex(index); err == nil {
			return s, nil
		}
	}
	s.last = make(map[Attempt]uint32)
	if err := s.scan(); err != nil {
		return nil, err
	}
	_ = s.seal() // of a full disk: the index stays in memory
	return s, nil
}

// scan reads all records and finds the last one of each attempt.
func (s *segment) scan() error {
	b, err := os.ReadFile(s.path)
	if err != nil {
		return fmt.Errorf("reading a segment of logs: %w", err)
	}
	offset := 0
	for r, n, err := parseRecord(b); err == nil; r, n, err = parseRecord(b[offset:]) {
		s.last[r.of] = uint32(offset) //nolint:gosec // a segment is far below 4 GiB
		s.newestMS = max(s.newestMS, r.timeMS)
		offset += n
	}
	s.attempts = len(s.last)
	return nil
}

// readRecord reads the record at an offset.
func readRecord(file io.ReaderAt, offset int64) (record, error) {
	head := make([]byte, recordHead)
	if _, err := file.ReadAt(head, offset); err != nil {
		return record{}, readError(err)
	}
	size := binary.LittleEndian.Uint32(head[4:])
	if size > maxData {
		return record{}, errDamaged
	}
	b := append(make([]byte, 0, recordHead+int(size)), head...)
	b = b[:cap(b)]
	if _, err := file.ReadAt(b[recordHead:], offset+recordHead); err != nil {
		return record{}, readError(err)
	}
	r, _, err := parseRecord(b)
	return r, err
}

// readError is errDamaged for a record that is not whole.
func readError(err error) error {
	if errors.Is(err, io.EOF) {
		return errDamaged
	}
	return fmt.Errorf("reading logs: %w", err)
}
