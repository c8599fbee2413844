package history

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/dtask/dtask/coordinator/history/format"
	"github.com/dtask/dtask/fsm"
)

// An ImportWriter writes the jobs that a new history imports while it is used already: see
// Create. Not safe for concurrent use.
type ImportWriter struct {
	file *os.File
	out  *importOutput
	to   uint64

	at      int64 // where the next chunk goes
	runs    []importRun
	run     importRun   // the one that is being written
	ids     []jobOffset // of that run
	jobs    uint64
	dropped uint64
	job     Position // of the chunks since begin
	begin   int64    // of the first chunk of that job
	parts   uint32   // of that job, so far
	last    Position // of the last job
}

// jobOffset is an entry of the index of a run.
type jobOffset struct {
	job    fsm.JobID
	offset int64 // of its first chunk
}

// CreateImport begins the file with the jobs for the history file at path, which left the
// state at log indexes up to to. The caller calls Close or Discard.
func CreateImport(path string, to uint64) (*ImportWriter, error) {
	file, err := os.OpenFile(path+ImportSuffix, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600) //nolint:gosec // beside the history
	if err != nil {
		return nil, fmt.Errorf("creating the file of jobs to import: %w", err)
	}
	w := &ImportWriter{file: file, out: newImportOutput(file), to: to}
	err = w.write(append(w.out.next(), importMagic...)) // the buffer takes it
	return w, err
}

// write writes what was appended to w.out.next().
func (w *ImportWriter) write(b []byte) error {
	w.at += int64(len(b) - len(w.out.next()))
	return w.out.write(b)
}

// Add adds a chunk. The jobs must come in the order in which they left the state, and the
// other chunks of a job before its head. The data is not kept. A job whose chunks are not
// complete is left out: it expired while it was backed up.
func (w *ImportWriter) Add(c Chunk) error {
	switch {
	case len(c.Data) > maxImportChunk:
		return fmt.Errorf("importing history: job %d has a chunk of %d bytes", c.Job, len(c.Data))
	case !w.last.before(c.Position) || c.Index > w.to:
		return fmt.Errorf("importing history: job %d of log index %d is out of order", c.Job, c.Index)
	}
	if w.parts == 0 || c.Position != w.job || c.Number == 1 {
		if err := w.drop(); err != nil {
			return err
		}
		w.job, w.begin = c.Position, w.at
	}
	if c.Number > 0 && c.Number != w.parts+1 || c.Number == 0 && c.Total != w.parts {
		if c.Number == 0 {
			w.dropped++
		}
		return w.drop()
	}
	if err := w.write(appendImportChunk(w.out.next(), &c)); err != nil {
		return err
	}
	if c.Number > 0 {
		w.parts = c.Number
		return nil
	}
	return w.added()
}

// drop removes the chunks of a job that is not complete.
func (w *ImportWriter) drop() error {
	if w.parts == 0 {
		return nil
	}
	w.parts, w.at = 0, w.begin
	return w.out.cut(w.begin)
}

// added adds the job whose head was written to the current run.
func (w *ImportWriter) added() error {
	if len(w.ids) == 0 {
		w.run = importRun{chunks: w.begin, first: w.job, low: w.job.Job}
	}
	w.run.low, w.run.high = min(w.run.low, w.job.Job), max(w.run.high, w.job.Job)
	w.ids = append(w.ids, jobOffset{w.job.Job, w.begin})
	w.jobs++
	w.last, w.parts = w.job, 0
	if len(w.ids) < runJobs {
		return nil
	}
	return w.endRun()
}

// endRun writes the index of the current run.
func (w *ImportWriter) endRun() error {
	if len(w.ids) == 0 {
		return nil
	}
	slices.SortFunc(w.ids, func(a, b jobOffset) int { return cmp.Compare(a.job, b.job) })
	w.run.index, w.run.jobs = w.at, len(w.ids)
	b := w.out.next()
	for _, e := range w.ids {
		b = binary.BigEndian.AppendUint64(format.AppendJobKey(b, e.job), uint64(e.offset)) //nolint:gosec // not negative
	}
	w.runs, w.ids = append(w.runs, w.run), w.ids[:0]
	return w.write(b)
}

// Close completes the file, synced, and returns the number of jobs in it, and of those that
// were left out although they have a head. Without jobs there is no file.
func (w *ImportWriter) Close() (jobs, dropped uint64, err error) {
	if err = w.drop(); err == nil {
		err = w.endRun()
	}
	if err == nil && w.jobs == 0 {
		w.Discard()
		return 0, w.dropped, nil
	}
	if err == nil {
		err = w.writeDirectory()
	}
	if failed := w.out.finish(); failed != nil {
		err = fmt.Errorf("writing jobs to import: %w", failed)
	}
	return w.jobs, w.dropped, errors.Join(err, w.file.Close())
}

func (w *ImportWriter) writeDirectory() error {
	var b []byte
	for i := range w.runs {
		b = w.runs[i].append(b)
	}
	for _, n := range []uint64{uint64(len(w.runs)), w.jobs, w.to} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return w.write(append(w.out.next(), format.Seal(nil, append(b, importMagic...))...))
}

// Discard removes the file, instead of Close.
func (w *ImportWriter) Discard() {
	_ = errors.Join(w.out.finish(), w.file.Close(), os.Remove(w.file.Name())) // nothing is lost
}

// Create creates the history file of a replica whose state has all jobs that left up to a log
// index. Those of the file with the jobs to import, up to log index importTo, are a gap, which
// History fills from it; 0: nothing is imported.
func Create(path string, index, importTo uint64) error {
	f, m, err := openFile(path)
	if err == nil && (m.completeTo > 0 || len(m.gaps) > 0) {
		err = errors.Join(errors.New("it exists"), f.close())
	}
	if err != nil {
		return fmt.Errorf("creating history file %s: %w", path, err)
	}
	m.completeTo = index
	if importTo > 0 {
		m.gaps = []gap{{To: importTo}}
	}
	err = f.update(m.store)
	return errors.Join(err, f.close())
}
