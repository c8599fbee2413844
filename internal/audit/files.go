package audit

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Directory is where a coordinator has its audit log, in its data directory.
const Directory = "audit"

const (
	filePrefix = "audit-"
	fileSuffix = ".jsonl"
)

// FileName is the name of a file whose first line has a number.
func FileName(first uint64) string { return fmt.Sprintf("%s%020d%s", filePrefix, first, fileSuffix) }

// File is a file of an audit log.
type File struct {
	Path  string
	First uint64 // number of its first line, by its name
}

// Files lists the files of a directory in their order. A directory that does not exist
// has none.
func Files(dir string) ([]File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing the audit log: %w", err)
	}
	var list []File
	for _, e := range entries {
		number, ok := strings.CutPrefix(strings.TrimSuffix(e.Name(), fileSuffix), filePrefix)
		first, err := strconv.ParseUint(number, 10, 64)
		if ok && err == nil && e.Name() == FileName(first) {
			list = append(list, File{Path: filepath.Join(dir, e.Name()), First: first})
		}
	}
	slices.SortFunc(list, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return list, nil
}

// line is a line that was read.
type line struct {
	Record

	text  []byte // with its newline
	valid bool   // it is a record; else only its text is known
}

func (l *line) head() Head { return Head{Seq: l.Seq, Hash: sha256.Sum256(l.text)} }

// prev is the hash that the line has of the one before it.
func (l *line) prev() (h [sha256.Size]byte) {
	b, err := hex.DecodeString(l.Prev)
	if err == nil && len(b) == len(h) {
		copy(h[:], b)
	}
	return h
}

// errLongLine is returned for a file with a line that no log has.
var errLongLine = fmt.Errorf("a line has more than %d bytes: this is not an audit log", MaxLine)

// lines calls f with each complete line, and returns the length of an incomplete last one.
func lines(r io.Reader, f func(l *line) error) (torn int, err error) {
	b := bufio.NewReaderSize(r, MaxLine)
	for {
		text, err := b.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			return len(text), nil
		case errors.Is(err, bufio.ErrBufferFull):
			return 0, errLongLine
		case err != nil:
			return 0, err
		}
		l := line{text: text}
		l.valid = json.Unmarshal(text, &l.Record) == nil && l.Seq > 0
		if err := f(&l); err != nil {
			return 0, err
		}
	}
}

// eachLine is lines for a file.
func eachLine(path string, f func(l *line) error) (torn int, err error) {
	file, err := os.Open(path) //nolint:gosec // chosen by the operator
	if err != nil {
		return 0, err
	}
	defer file.Close() //nolint:errcheck // only read
	torn, err = lines(file, f)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", path, err)
	}
	return torn, nil
}

// Each calls f with the records of files in order. Lines that are not records are left
// out.
func Each(files []File, f func(r *Record) error) error {
	for _, file := range files {
		_, err := eachLine(file.Path, func(l *line) error {
			if !l.valid {
				return nil
			}
			return f(&l.Record)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// End is where a file ends.
type End struct {
	Head  Head  // of the last line that is a record; zero if it has none
	Bytes int64 // length of the complete lines
	Clean bool  // the last complete line, if any, is a record
}

// FindEnd reads a file to its end.
func FindEnd(path string) (End, error) {
	e := End{Clean: true}
	_, err := eachLine(path, func(l *line) error {
		e.Bytes += int64(len(l.text))
		if e.Clean = l.valid; l.valid {
			e.Head = l.head()
		}
		return nil
	})
	return e, err
}

// errFound ends a search.
var errFound = errors.New("found")

// Presence is what files have of a line.
type Presence uint8

// The kinds of presence.
const (
	Missing Presence = iota + 1
	Present
	Changed // another line has the number
	Expired // it is before the first line of the files
	Noted   // missing or changed, and the log continues behind it: see MethodDamaged
)

// Look looks for a line in files.
func Look(files []File, head Head) (Presence, error) {
	at := len(files) - 1
	for at >= 0 && files[at].First > head.Seq {
		at--
	}
	if at < 0 && len(files) > 0 {
		return Expired, nil
	}
	found := Missing
	for _, f := range files[max(at, 0):] {
		_, err := eachLine(f.Path, func(l *line) error {
			switch {
			case !l.valid || l.Seq < head.Seq:
			case l.head() == head:
				found = Present
				return errFound
			case l.Seq == head.Seq:
				found = Changed
			case l.prev() == head.Hash:
				found = Noted
				return errFound
			}
			return nil
		})
		if errors.Is(err, errFound) {
			return found, nil
		}
		if err != nil {
			return 0, err
		}
	}
	return found, nil
}

// Lines calls f with the text of the records that have a number of from or above, and
// returns the number that the next one has. Files that end before are not read.
func Lines(files []File, from uint64, f func(text []byte)) (next uint64, err error) {
	next = from
	for i, file := range files {
		if i+1 < len(files) && files[i+1].First <= from {
			continue
		}
		_, err := eachLine(file.Path, func(l *line) error {
			if l.valid && l.Seq >= from {
				f(l.text)
				next = l.Seq + 1
			}
			return nil
		})
		if err != nil {
			return from, err
		}
	}
	return next, nil
}
