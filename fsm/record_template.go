package fsm

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The runs of a schedule have the same tasks. The frames of a record that have
// them are its template: they don't depend on the run, so that a history can
// keep one copy of them for all runs. A record is what precedes the template,
// the template, and the rest.

// MinTemplate is the length of the smallest template that is worth its own
// copy, in bytes.
const MinTemplate = 256 << 10

// maxChunkFrame is how much longer the frame of a chunk is than its tasks.
const maxChunkFrame = frameHead + 4 + 5 + 1 + 5 + 5

// MayShare reports whether the job is a run of a schedule whose template may
// have MinTemplate.
func (a *ArchivedJob) MayShare() bool {
	if a.job.header.GetRun() == nil {
		return false
	}
	n := 0
	for _, c := range a.job.chunks {
		n += c.Size() + maxChunkFrame
	}
	return n >= MinTemplate
}

// WriteTemplate writes the template of a job's record.
func (r *RecordWriter) WriteTemplate(a *ArchivedJob, w io.Writer) error {
	f := &r.f
	f.flushBytes = 16 << 10
	f.begin(w, "")
	f.chunks(a.job.chunks)
	if err := f.finish(); err != nil {
		return fmt.Errorf("writing tasks of job %d: %w", a.job.id, err)
	}
	return nil
}

// WriteApart writes the record of a job without its template, and returns its
// head. It calls template once it has written what precedes the template.
func (r *RecordWriter) WriteApart(a *ArchivedJob, w io.Writer, template func() error) (Head, error) {
	return r.write(a, w, template)
}

// apart calls a function after all frames are written. The current frame must be
// empty.
func (f *frameWriter) apart(do func() error) {
	f.e.b = f.e.b[:f.at]
	f.flush()
	if f.err == nil {
		f.err = do()
	}
	f.next()
}

// SplitRecord copies a record without its head, which ReadHead reads, to three
// writers: what precedes its template, the template, and the rest. Of a damaged
// record, each writer may get any part.
func SplitRecord(rest io.Reader, before, template, after io.Writer) error {
	r := bufio.NewReaderSize(rest, 16<<10)
	err := copyFrames(before, r, frameSummary, 1)
	if err == nil {
		err = copyFrames(template, r, frameChunk, -1)
	}
	if err == nil {
		_, err = io.Copy(after, r)
	}
	if err != nil {
		return fmt.Errorf("splitting record: %w", err)
	}
	return nil
}

// copyFrames copies at most n frames of a kind, or all of them that follow each
// other.
func copyFrames(w io.Writer, r *bufio.Reader, kind frameKind, n int) error {
	for ; n != 0; n-- {
		head, err := r.Peek(frameHead)
		switch {
		case len(head) == 0 && errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return unexpected(err)
		case frameKind(head[0]) != kind:
			return nil
		}
		length := binary.LittleEndian.Uint32(head[1:])
		if length > maxFrame {
			return fmt.Errorf("invalid length %d", length)
		}
		if _, err := io.CopyN(w, r, frameHead+int64(length)+4); err != nil {
			return unexpected(err)
		}
	}
	return nil
}
