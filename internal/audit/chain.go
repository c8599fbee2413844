package audit

import (
	"errors"
	"fmt"
	"os"
)

// Link is a line of a file whose lines follow each other.
type Link struct {
	*Record

	Number int  // in the file, from 1
	Head   Head // of the log with this line
	Before Head // of the log without it; the zero value before line 1
}

// ErrNotLog is returned for a file that is not a part of an audit log as it was written.
var ErrNotLog = errors.New("not a part of an audit log as it was written")

// ErrIncomplete is the ErrNotLog of a file whose last line is incomplete and whose other lines
// are as they were written, as after a crash of the coordinator. f was called with those.
var ErrIncomplete = fmt.Errorf("%w: the line is incomplete", ErrNotLog)

// ReadChain calls f with each line of a file, which may be any part of an audit log, until f
// returns an error. Unlike Each, it fails if a line is not a record, is incomplete, or does
// not follow the one before: the error is ErrNotLog then, and names the line.
func ReadChain(path string, f func(Link) error) error {
	file, err := os.Open(path) //nolint:gosec // chosen by the operator
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // only read
	number, last := 0, Head{}
	fault := func(format string, args ...any) error {
		return fmt.Errorf("%s:%d: %w: %s", path, number, ErrNotLog, fmt.Sprintf(format, args...))
	}
	torn, err := lines(file, func(l *line) error {
		number++
		switch {
		case !l.valid:
			return fault("the line is not a record")
		case number > 1 && l.Seq != last.Seq+1:
			return fault("line %d of the log follows line %d", l.Seq, last.Seq)
		case number > 1 && l.prev() != last.Hash:
			return fault("line %d of the log does not follow line %d: one of them was changed", l.Seq, last.Seq)
		}
		last = l.head()
		return f(Link{Record: &l.Record, Number: number, Head: last, Before: Head{Seq: l.Seq - 1, Hash: l.prev()}})
	})
	number++
	switch {
	case errors.Is(err, errLongLine):
		return fault("%v", err)
	case err != nil:
		return err
	case torn > 0:
		return fmt.Errorf("%s:%d: %w: copy the file again, or remove the line from the copy if it is so in the original, as after a crash",
			path, number, ErrIncomplete)
	case number == 1:
		return fault("the file is empty")
	}
	return nil
}
