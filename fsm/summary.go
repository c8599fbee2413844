package fsm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// frameSummary is the kind of the frame with the summary of a record. It
// follows the first frame of the job: what is read of a record to show the job
// is then at its beginning.
const frameSummary frameKind = 130

// maxSummary is the length of the longest summary, in bytes. The record of a
// job with a longer one has none.
const maxSummary = 4 << 20

func (f *frameWriter) summary(b []byte) {
	if len(b) == 0 || len(b) > maxSummary {
		return
	}
	f.e.b = append(f.e.b, b...)
	f.frame(frameSummary)
}

// summary reads the summary if it is the next frame; else it returns nil and
// reads nothing.
func (f *frameReader) summary() ([]byte, error) {
	kind, err := f.r.Peek(1)
	switch {
	case errors.Is(err, io.EOF):
		return nil, nil // the frames that are missing are reported when they are read
	case err != nil:
		return nil, err //nolint:wrapcheck // by the callers
	case frameKind(kind[0]) != frameSummary:
		return nil, nil
	}
	d, err := f.expect(frameSummary)
	if err != nil {
		return nil, err
	}
	return d.b, nil
}

// ReadSummary returns the summary of a record: bytes that RecordWriter.Summarize
// returned, so that a large job can be shown without reading all of it; nil if
// the record has none. rest is the record without its head: see ReadHead. Only
// its beginning is read.
func ReadSummary(rest io.Reader) ([]byte, error) {
	f := frameReader{r: bufio.NewReaderSize(rest, 4<<10)}
	b, err := f.summary()
	if err != nil {
		return nil, fmt.Errorf("reading summary of record: %w", err)
	}
	return b, nil
}
