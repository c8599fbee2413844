package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one error in a job file or a job.
type Fault struct {
	Path   string // file name as passed by the caller; empty without a file
	Line   int    // from 1; 0 without a file
	Column int    // from 1, in characters; 0 without a file
	Where  string // location in the job: job.priority, task "fetch": retry.max
	What   string // what is wrong
	Do     string // what to do about it
}

// String returns the fault as one line: FILE:LINE:COLUMN: where: what is
// wrong; what to do. Without a file it starts with where.
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

// Faults are the faults of one job, in file order. An error of this type has
// at least one. It keeps the first 100 faults; a last one counts the others.
type Faults []Fault //nolint:errname // it is a list; FaultsError would stutter

// Error returns all faults, one per line.
func (fs Faults) Error() string { return strings.Join(fs.Lines(), "\n") }

// Lines returns each fault as one line.
func (fs Faults) Lines() []string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return lines
}

// faultKey identifies a fault, so that a fault in an anchor that a thousand
// tasks use is reported once.
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

// add adds a fault, unless the same one was found at the same position.
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

// full reports whether further faults will not be shown, so that callers can
// skip work that only improves their wording.
func (c *collector) full() bool { return c.total >= maxFaults }

// faults returns the faults in file order, at most maxFaults of them.
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
		What: fmt.Sprintf("%s more faults are not shown", count(c.total-maxFaults)), Do: "correct these first",
	}
	if next.Line == 0 { // a checker stops early and can't count
		rest.Where, rest.What = "job", "further faults are not shown"
	}
	return append(c.kept[:maxFaults:maxFaults], rest)
}

// err returns the faults as an error, or nil.
func (c *collector) err() error {
	if fs := c.faults(); fs != nil {
		return fs
	}
	return nil
}

// count formats a number with separators: 100,000.
func count(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// bytesText formats a size exactly, in KiB if it is a multiple.
func bytesText(n int) string {
	if n >= 1024 && n%1024 == 0 {
		return count(n>>10) + " KiB"
	}
	return count(n) + " bytes"
}
