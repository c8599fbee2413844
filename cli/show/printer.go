package show

import (
	"bytes"
	"fmt"
	"time"
)

// A Printer collects text for people. Untrusted text is made safe for a
// terminal (see Clean), except in Line.
type Printer struct {
	buf   bytes.Buffer
	color bool
	now   time.Time // the reference of relative times
}

// NewPrinter returns an empty printer.
func NewPrinter(color bool, now time.Time) *Printer { return &Printer{color: color, now: now} }

// Bytes returns the text.
func (p *Printer) Bytes() []byte { return p.buf.Bytes() }

// Line adds a line. The caller cleans untrusted text.
func (p *Printer) Line(format string, args ...any) {
	fmt.Fprintf(&p.buf, format, args...)
	p.buf.WriteByte('\n')
}

// field adds an indented line with a name and a value, unless the value is empty.
func (p *Printer) field(name, value string) {
	if value != "" {
		p.Line("  %-10s %s", name, Clean(value))
	}
}

// ago returns how long ago a Unix time in milliseconds was.
func (p *Printer) ago(ms int64) string { return Ago(ms, p.now) }

// took returns the time between two Unix times in milliseconds.
func (p *Printer) took(from, to int64) string { return Took(from, to, p.now) }

// state colors a state. The word stays, so that color is never the only sign.
func (p *Printer) state(s string) string {
	switch s {
	case "completed", "aggregated", "leader", "up", "active":
		return p.sgr("32", s)
	case "running", "assigned":
		return p.sgr("36", s)
	case "failed", "dead", "lost", "unreachable", "down", "revoked", permanent:
		return p.sgr("31", s)
	case "cancelled", "scheduled", "candidate", "draining", "drained", "expired", "used up":
		return p.sgr("33", s)
	}
	return s
}

func (p *Printer) bold(s string) string { return p.sgr("1", s) }

func (p *Printer) sgr(code, s string) string {
	if !p.color {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}
