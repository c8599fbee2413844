package history

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"sort"
	"sync"
	"syscall"

	"github.com/dtask/dtask/coordinator/history/format"
	"github.com/dtask/dtask/fsm"
)

// importFile is an open import file. It is safe for concurrent use: its methods return
// os.ErrClosed after close.
type importFile struct {
	reading sync.RWMutex // held while a job is read or jobs are listed; close waits for them
	file    *os.File
	runs    []importRun
	jobs    uint64
	to      uint64 // last log index
}

// openImport opens an import file. It returns a *format.DamageError for one that is damaged
// or incomplete.
func openImport(path string) (*importFile, error) {
	file, err := os.Open(path) //nolint:gosec // beside the history
	if err != nil {
		return nil, err
	}
	f := &importFile{file: file}
	if err := f.readDirectory(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return f, nil
}

func (f *importFile) readDirectory() error {
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	damaged := format.Damaged("the file of jobs to import is incomplete")
	if size < int64(len(importMagic)+importTail) {
		return damaged
	}
	tail, err := f.read(size-int64(importTail), importTail)
	if err != nil {
		return err
	}
	n := binary.BigEndian.Uint64(tail)
	if n > uint64(size)/runDescriptor { //nolint:gosec // not negative
		return damaged
	}
	length := int(n)*runDescriptor + importTail //nolint:gosec // less than the file
	if int64(length) > size {
		return damaged
	}
	if tail, err = f.read(size-int64(length), length); err != nil {
		return err
	}
	b, err := format.Open(nil, tail)
	if err != nil {
		return err
	}
	for range n {
		f.runs = append(f.runs, parseRun(b))
		b = b[runDescriptor:]
	}
	f.jobs, f.to = binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])
	if string(b[24:]) != importMagic {
		return damaged
	}
	return nil
}

// close closes the file. It must not be the import file of the history any more.
func (f *importFile) close() error {
	f.reading.Lock()
	defer f.reading.Unlock()
	return f.file.Close()
}

// end returns the position after all jobs of the file up to a log index.
func (f *importFile) end(to uint64) Position { return Position{Index: min(to, f.to), Job: lastJob} }

// read reads n bytes.
func (f *importFile) read(at int64, n int) ([]byte, error) {
	b := make([]byte, n)
	_, err := f.file.ReadAt(b, at)
	return b, readError(err)
}

// readError returns the error of a read: a *format.DamageError if the disk does not have what
// was written.
func readError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.EIO) {
		return format.Damaged("the file of jobs to import can't be read: %v", err)
	}
	return err
}

// importRecord is a job of an import file.
type importRecord struct {
	Chunk // its head, or the whole record

	file  *importFile
	parts int64 // offset of the first of the other chunks
}

// find finds a job; ok is false if the file does not have it.
func (f *importFile) find(id fsm.JobID) (r importRecord, ok bool, err error) {
	for i := range f.runs {
		run := &f.runs[i]
		if id < run.low || id > run.high {
			continue
		}
		entry, err := f.search(run, id)
		if err != nil || entry.job != id {
			if err != nil {
				return r, false, err
			}
			continue
		}
		r, err = f.record(entry)
		return r, err == nil, err
	}
	return r, false, nil
}

// search returns the entry of a run with the highest ID up to one; zero if all are higher.
func (f *importFile) search(run *importRun, id fsm.JobID) (found jobOffset, err error) {
	_, entries, err := f.entriesBelow(run, id+1, 1)
	if err != nil || len(entries) == 0 {
		return found, err
	}
	return entries[0], nil
}

// entriesBelow returns at most n entries of a run, those of the highest IDs below one, in
// ascending order, and how many lower ones there are.
func (f *importFile) entriesBelow(run *importRun, below fsm.JobID, n int) (rest int, entries []jobOffset, err error) {
	end := sort.Search(run.jobs, func(i int) bool {
		b, failed := f.read(run.index+int64(i)*importEntry, importEntry)
		err = errors.Join(err, failed)
		return failed != nil || fsm.JobID(binary.BigEndian.Uint64(b)) >= below
	})
	if err != nil {
		return 0, nil, err
	}
	rest = max(0, end-n)
	entries, err = f.entries(run, rest, end)
	return rest, entries, err
}

// entries reads the entries of a run from one on, up to, not including, another one.
func (f *importFile) entries(run *importRun, from, to int) ([]jobOffset, error) {
	b, err := f.read(run.index+int64(from)*importEntry, (to-from)*importEntry)
	if err != nil {
		return nil, err
	}
	list := make([]jobOffset, 0, to-from)
	for ; len(b) > 0; b = b[importEntry:] {
		list = append(list, jobOffset{fsm.JobID(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:]))}) //nolint:gosec // checked by reading it
	}
	return list, nil
}

// record reads the head of a job.
func (f *importFile) record(e jobOffset) (r importRecord, err error) {
	r.file, r.parts = f, e.offset
	for at := e.offset; ; {
		b, err := f.read(at, importHead)
		if err != nil {
			return r, err
		}
		c, size, err := parseImportHead(b)
		if err != nil {
			return r, err
		}
		if c.Job != e.job {
			return r, format.Damaged("the index of the jobs to import has job %d, and the file job %d", e.job, c.Job)
		}
		if c.Number > 0 {
			at += int64(size)
			continue
		}
		if b, err = f.read(at, size); err == nil {
			r.Chunk, err = parseImportChunk(b)
		}
		return r, err
	}
}

// head reads the head of a job, and returns where it ends in the data.
func (r *importRecord) head() (fsm.Head, int, error) {
	h, size, err := fsm.ReadHead(r.Data)
	if err == nil && h.ID != r.Job {
		err = errors.New("the record belongs to another job")
	}
	if err != nil {
		return h, 0, format.Damaged("job %d, which is to be imported: %v", r.Job, err)
	}
	return h, size, nil
}

// summary reads the head and the summary of a job, nil if it has none.
func (r *importRecord) summary() (head fsm.Head, summary []byte, err error) {
	head, size, err := r.head()
	if err != nil {
		return head, nil, err
	}
	summary, err = fsm.ReadSummary(r.reader(size))
	return head, summary, r.explain(err)
}

// adopt puts the job into a fork of the state, which must not be used after an error.
func (r *importRecord) adopt(st *fsm.State) error {
	_, err := st.AdoptRecord(r.reader(0))
	return r.explain(err)
}

// explain returns the error of reading the record: one that is not of the file is damage.
func (r *importRecord) explain(err error) error {
	if _, ofFile := errors.AsType[*fs.PathError](err); err == nil || ofFile {
		return err
	}
	return format.Damaged("job %d, which is to be imported: %v", r.Job, err)
}

// reader reads the record from an offset on.
func (r *importRecord) reader(from int) io.Reader {
	return io.MultiReader(bytes.NewReader(r.Data[from:]), &importPartReader{file: r.file, at: r.parts, left: r.Total})
}

// importPartReader reads the parts of a record.
type importPartReader struct {
	file *importFile
	at   int64
	left uint32 // chunks
	b    []byte
}

// Read implements io.Reader.
func (r *importPartReader) Read(b []byte) (int, error) {
	for len(r.b) == 0 {
		if r.left == 0 {
			return 0, io.EOF
		}
		head, err := r.file.read(r.at, importHead)
		if err != nil {
			return 0, err
		}
		_, size, err := parseImportHead(head)
		if err != nil {
			return 0, err
		}
		whole, err := r.file.read(r.at, size)
		if err != nil {
			return 0, err
		}
		c, err := parseImportChunk(whole)
		if err != nil {
			return 0, err
		}
		r.b, r.at, r.left = c.Data, r.at+int64(size), r.left-1
	}
	n := copy(b, r.b)
	r.b = r.b[n:]
	return n, nil
}

// importCursor reads the chunks of an import file in order.
type importCursor struct {
	file *importFile
	run  int // the next one
	in   *bufio.Reader
	left int64 // bytes of the chunks of the current run

	skipped bool // damaged jobs before the first chunk
}

// cursor returns a cursor before the first chunk of the job after a position, and how many
// jobs follow.
func (f *importFile) cursor(after Position) (c *importCursor, jobs uint64, err error) {
	// The last run that begins at or before the position may have it.
	n := sort.Search(len(f.runs), func(i int) bool { return after.before(f.runs[i].first) })
	c = &importCursor{file: f, run: max(0, n-1)}
	for _, run := range f.runs[c.run:] {
		jobs += uint64(run.jobs) //nolint:gosec // not negative
	}
	for n > 0 {
		next, _, err := c.peek()
		if err == nil && (next == nil || after.before(next.Position)) {
			break
		}
		if err == nil {
			*next, err = c.next()
		}
		switch {
		case isDamaged(err):
			c.skipped = true
			if err := c.skipJob(); err != nil {
				return nil, 0, err
			}
		case err != nil:
			return nil, 0, err
		case next.Number == 0:
			jobs--
		}
	}
	return c, jobs, nil
}

// peek returns the next chunk without its data; nil at the end. size is that of the whole
// chunk in the file.
func (c *importCursor) peek() (next *Chunk, size int, err error) {
	for c.left == 0 {
		if c.run == len(c.file.runs) {
			return nil, 0, nil
		}
		run := &c.file.runs[c.run]
		c.run++
		c.left = run.index - run.chunks
		c.in = bufio.NewReaderSize(io.NewSectionReader(c.file.file, run.chunks, c.left), importBuffer)
	}
	b, err := c.in.Peek(importHead)
	if err != nil {
		return nil, 0, readError(err)
	}
	head, size, err := parseImportHead(b)
	if err == nil && int64(size) > c.left {
		err = format.Damaged("a chunk to import is longer than its run")
	}
	return &head, size, err
}

// next reads the next chunk; Data is nil at the end.
func (c *importCursor) next() (Chunk, error) {
	head, size, err := c.peek()
	if err != nil || head == nil {
		return Chunk{}, err
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(c.in, b); err != nil {
		return Chunk{}, readError(err)
	}
	next, err := parseImportChunk(b)
	if err == nil {
		c.left -= int64(size)
	}
	return next, err
}

// skipJob continues, after an error of next, with the next job that the index has.
func (c *importCursor) skipJob() error {
	run := &c.file.runs[c.run-1]
	entries, err := c.file.entries(run, 0, run.jobs)
	if err != nil {
		return err
	}
	at, next := run.index-c.left, run.index
	for _, e := range entries {
		if e.offset > at {
			next = min(next, e.offset)
		}
	}
	c.left = run.index - next
	c.in.Reset(io.NewSectionReader(c.file.file, next, c.left))
	return nil
}
