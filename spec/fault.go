package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing that is wrong with a job file or a job.
type Fault struct {
	Path   string // the file as the caller named it; empty when there is none
	Line   int    // from 1; 0 when there is no file
	Column int    // from 1, in characters; 0 when there is no file
	Where  string // the place in the job: job.priority, task "fetch": retry.max
	What   string // what is wrong
	Do     string // what to do about it
}

// String is the fault as one line: FILE:LINE:COLUMN: where: what is wrong; what
// to do. Without a file it begins with where.
func (f Fault) String() string {
	var b strings.Builder
	if f.Line > 0 {
		fmt.Fprintf(&b, "%s:%d:%d: ", f.Path, f.Line, f.Column)
	}
	if f.Where != "" {
		b.WriteString(f.Where)
		b.WriteString(": ")
	}
	b.WriteString(f.What)
	if f.Do != "" {
		b.WriteString("; ")
		b.WriteString(f.Do)
	}
	return b.String()
}

// Faults are the faults of one job, in file order. It is never empty where it is
// returned as an error. Of more than 100 the first 100 are kept, and a last one
// says how many are missing.
type Faults []Fault //nolint:errname // a list of faults is what it is; FaultsError says it twice

// Error is all faults, one a line.
func (fs Faults) Error() string { return strings.Join(fs.Lines(), "\n") }

// Lines is each fault as one line.
func (fs Faults) Lines() []string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return lines
}

// spot tells faults apart: an anchor with a fault in it that is used by a
// thousand tasks is one fault.
type faultKey struct {
	line, column int
	what         string
}

// collector gathers faults.
type collector struct {
	file  string
	kept  Faults
	seen  map[faultKey]struct{}
	total int
}

// add keeps a fault, unless the same was found at the same place before.
func (c *collector) add(line, column int, where, what, do string) {
	if line > 0 {
		s := faultKey{line, column, what}
		if _, known := c.seen[s]; known {
			return
		}
		if c.seen == nil {
			c.seen = make(map[faultKey]struct{})
		}
		if len(c.seen) < maxKept {
			c.seen[s] = struct{}{}
		}
	}
	c.total++
	if len(c.kept) < maxKept {
		c.kept = append(c.kept, Fault{Path: c.file, Line: line, Column: column, Where: where, What: what, Do: do})
	}
}

// full reports whether further faults will not be shown, so that work which
// only improves their wording can be saved.
func (c *collector) full() bool { return c.total >= maxFaults }

// faults is everything that was found, in file order and bounded.
func (c *collector) faults() Faults {
	if len(c.kept) == 0 {
		return nil
	}
	slices.SortStableFunc(c.kept, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if c.total <= maxFaults {
		return c.kept
	}
	next := c.kept[maxFaults]
	rest := Fault{
		Path: c.file, Line: next.Line, Column: next.Column, Where: wholeFile,
		What: fmt.Sprintf("%s more faults are not shown", count(c.total-maxFaults)), Do: "mend these first",
	}
	if next.Line == 0 { // a checker stops looking, so it cannot count
		rest.Where, rest.What = "job", "further faults are not shown"
	}
	return append(c.kept[:maxFaults:maxFaults], rest)
}

// err is the faults as an error, or nil.
func (c *collector) err() error {
	if fs := c.faults(); fs != nil {
		return fs
	}
	return nil
}

// count writes a number with separators: 100,000.
func count(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// bytesText writes a size exactly, in KiB where that is a whole number.
func bytesText(n int) string {
	if n >= 1024 && n%1024 == 0 {
		return count(n>>10) + " KiB"
	}
	return count(n) + " bytes"
}
