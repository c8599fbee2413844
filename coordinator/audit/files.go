package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/dtask/dtask/internal/audit"
	"github.com/dtask/dtask/internal/durable"
)

// File is a file that is appended to.
type File interface {
	io.Writer
	Sync() error
	Truncate(size int64) error
	Close() error
}

// openFile opens a file for appending, which is created if it does not exist.
func openFile(path string) (File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600) //nolint:gosec // in the data directory
	if err != nil {
		return nil, err
	}
	return f, nil
}

// writer appends lines to a file.
type writer struct {
	file File
	size int64      // of the lines that were written
	head audit.Head // of the last one
}

// write writes and syncs lines. After an error the file ends with the lines before, as far
// as that is possible, and the writer must be closed.
func (w *writer) write(list ...audit.Record) error {
	var b []byte
	head := w.head
	for _, r := range list {
		b, head = head.Append(b, r)
	}
	_, err := w.file.Write(b)
	if err == nil {
		err = w.file.Sync()
	}
	if err != nil {
		// What was written of the lines must not stay: they are written again. Truncating
		// needs no space.
		return errors.Join(err, w.file.Truncate(w.size))
	}
	w.size, w.head = w.size+int64(len(b)), head
	return nil
}

// open opens the newest file, or the first one, and continues its chain. What follows its
// last complete line was being written when the process ended, and is removed. Behind a
// last line that is not a record, another file begins, so that it remains as it is.
func (l *Log) open() error {
	if l.w != nil {
		return nil
	}
	if err := durable.MakeDir(l.cfg.Dir); err != nil {
		return fmt.Errorf("opening the audit log: %w", err)
	}
	files, err := audit.Files(l.cfg.Dir)
	if err != nil {
		return err
	}
	head, end, reason := audit.Head{}, audit.End{}, "the log begins"
	for i := len(files) - 1; i >= 0 && head.Seq == 0; i-- {
		e, err := audit.FindEnd(files[i].Path)
		if err != nil {
			return err
		}
		if head = e.Head; i == len(files)-1 {
			end = e
		}
	}
	if head.Seq > 0 {
		reason = fmt.Sprintf("follows line %d; dtaskd %s starts", head.Seq, l.cfg.Version)
	}
	path, size := filepath.Join(l.cfg.Dir, audit.FileName(head.Seq+1)), int64(0)
	if n := len(files); n > 0 && (end.Clean && end.Head.Seq > 0 || files[n-1].Path == path) {
		path, size = files[n-1].Path, end.Bytes
	}
	return l.openAt(path, size, head, reason)
}

// openAt opens a file that has size bytes of lines, and writes that it was opened.
func (l *Log) openAt(path string, size int64, head audit.Head, reason string) error {
	f, err := l.cfg.Open(path)
	if err != nil {
		return fmt.Errorf("opening the audit log: %w", err)
	}
	w := &writer{file: f, size: size, head: head}
	if err := errors.Join(f.Truncate(size), durable.SyncDir(l.cfg.Dir)); err != nil {
		return errors.Join(fmt.Errorf("opening the audit log: %w", err), f.Close())
	}
	l.w = w
	l.cluster = l.cfg.Cluster()
	return l.append(l.openLine(reason))
}

// openLine is a line that opens the log, or names the cluster.
func (l *Log) openLine(reason string) audit.Record {
	r := l.own(audit.MethodOpen, audit.Allowed, reason, 0)
	r.Cluster = l.cluster
	return r
}

// nameCluster writes which cluster this is, if that was not known when the file was opened: by
// this, the log is recognized.
func (l *Log) nameCluster() error {
	if l.cluster != "" {
		return nil
	}
	if l.cluster = l.cfg.Cluster(); l.cluster == "" {
		return nil
	}
	return l.append(l.openLine("the cluster is known"))
}

// rotate begins another file, and deletes the oldest ones beyond Config.Files.
func (l *Log) rotate() error { return l.follow(l.w.head, "") }

// follow begins another file, whose first line follows a head.
func (l *Log) follow(head audit.Head, reason string) error {
	if reason == "" {
		reason = fmt.Sprintf("follows line %d", head.Seq)
	}
	l.close()
	if err := l.openAt(filepath.Join(l.cfg.Dir, audit.FileName(head.Seq+1)), 0, head, reason); err != nil {
		return err
	}
	files, err := audit.Files(l.cfg.Dir)
	if err != nil {
		return err
	}
	for _, f := range files[:max(0, len(files)-l.cfg.Files)] {
		if err := os.Remove(f.Path); err != nil {
			return fmt.Errorf("deleting the oldest file of the audit log: %w", err)
		}
	}
	return nil
}

// close closes the file.
func (l *Log) close() {
	if l.w != nil {
		_ = l.w.file.Close() // its lines are synced
		l.w = nil
	}
}

// compare compares the files with the head in the replicated state, when that is one that
// they were not compared with. If they lack it, they were cut or changed while no process
// wrote them: the chain continues behind the head, so that verifying the log always shows
// the gap.
func (l *Log) compare() error {
	known := l.cfg.Known()
	if known.Seq == 0 || known == l.confirmed || slices.Contains(l.recent[:], known) {
		return nil
	}
	files, err := audit.Files(l.cfg.Dir)
	if err != nil {
		return err
	}
	presence, err := audit.Look(files, known)
	if err != nil {
		return err
	}
	damage := ""
	switch presence {
	case audit.Missing:
		damage = fmt.Sprintf("the cluster knows line %d, and the log has no such line", known.Seq)
	case audit.Changed:
		damage = fmt.Sprintf("line %d is not the one that the cluster knows", known.Seq)
	case audit.Present, audit.Expired, audit.Noted:
	}
	if damage != "" {
		if err := l.continueAfter(known, damage); err != nil {
			return err
		}
	}
	l.confirmed = known
	return nil
}

// continueAfter continues the chain behind a head that the files lack.
func (l *Log) continueAfter(known audit.Head, damage string) error {
	l.mu.Lock()
	l.damage = damage
	l.mu.Unlock()
	l.cfg.Logger.Error("audit log was cut or changed", "what", damage, "dir", l.cfg.Dir)
	head := audit.Head{Seq: max(known.Seq, l.w.head.Seq), Hash: known.Hash}
	if err := l.follow(head, ""); err != nil {
		return err
	}
	return l.append(l.own(audit.MethodDamaged, audit.Failed, damage, 0))
}
