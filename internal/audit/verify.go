package audit

import (
	"encoding/hex"
	"fmt"
	"path/filepath"
)

// Fault is a place where files are not as they were written.
type Fault struct {
	File string // name
	Line int    // in the file, from 1; 0: the file as a whole
	Text string
}

// String returns the place and what is wrong.
func (f Fault) String() string {
	if f.Line == 0 {
		return f.File + ": " + f.Text
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Text)
}

// Report is the result of Verify.
type Report struct {
	ServerID    string // of the coordinator that wrote the log; empty: unknown
	Files       int
	Lines       int
	First, Last uint64   // numbers of lines; 0: the log is empty
	Head        Head     // of the last line
	Before      [32]byte // hash of the line before the first one; zero: the first one is line 1
	Torn        bool     // the last line is incomplete: the coordinator is writing it, or has crashed
	Faults      []Fault
}

// verifier checks the lines of files.
type verifier struct {
	report Report
	known  Head // that the cluster has; zero: none
	file   string
	line   int
}

func (v *verifier) fault(format string, args ...any) {
	v.report.Faults = append(v.report.Faults, Fault{v.file, v.line, fmt.Sprintf(format, args...)})
}

// Verify checks that each line of files follows the one before it, and that a line that
// the cluster knows is one of them. known is zero if the cluster knows none. The error is
// about files that can't be read; what is wrong in them is in the report.
func Verify(files []File, known Head) (*Report, error) {
	v := verifier{known: known}
	for i, f := range files {
		v.file, v.line = filepath.Base(f.Path), 0
		torn, err := eachLine(f.Path, func(l *line) error {
			v.line++
			v.check(l, f.First)
			return nil
		})
		if err != nil {
			return nil, err
		}
		v.line++
		switch {
		case torn > 0 && i == len(files)-1:
			v.report.Torn = true
		case torn > 0:
			v.fault("the line is incomplete, and is not the last one of the log")
		}
		v.report.Files++
	}
	v.end()
	return &v.report, nil
}

// check checks a line.
func (v *verifier) check(l *line, first uint64) {
	r := &v.report
	r.Lines++
	if !l.valid {
		v.fault("the line is not a record")
		return
	}
	switch last := r.Head; {
	case v.line == 1 && l.Seq != first:
		v.fault("the file begins with line %d of the log, and its name says %d", l.Seq, first)
	case r.First == 0:
	case l.Seq <= last.Seq:
		v.fault("line %d of the log follows line %d", l.Seq, last.Seq)
	case l.Seq > last.Seq+1:
		v.fault("lines %d to %d of the log are missing", last.Seq+1, l.Seq-1)
	case l.prev() != last.Hash:
		v.fault("line %d of the log does not follow line %d: one of them was changed", l.Seq, last.Seq)
	}
	if r.First == 0 {
		r.First, r.Before = l.Seq, l.prev()
		if l.Seq == 1 && r.Before != ([32]byte{}) {
			v.fault("line 1 of the log has a line before it")
		}
	}
	r.Head, r.Last = l.head(), l.Seq
	if l.Method == MethodOpen {
		r.ServerID = l.Object
	}
	if l.Seq == v.known.Seq && r.Head.Hash != v.known.Hash {
		v.fault("line %d of the log is not the one that the cluster knows: it, or one before it, was changed", l.Seq)
	}
}

// end checks what is at the end of the log.
func (v *verifier) end() {
	r := &v.report
	v.line = 0
	switch {
	case v.known.Seq == 0 || v.known.Seq <= r.Last:
	case r.Last == 0:
		v.file = "."
		v.fault("all lines up to %d of the log are missing: the cluster knows line %d", v.known.Seq, v.known.Seq)
	default:
		v.fault("the log ends with line %d, and the cluster knows line %d: the lines between were removed", r.Last, v.known.Seq)
	}
}

// HashText is a hash as lines have it.
func HashText(h [32]byte) string { return hex.EncodeToString(h[:]) }
