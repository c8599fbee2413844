package backoff

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Class is a set of failures that a retry policy names. ParseClass returns
// one; the zero Class matches nothing. Classes can be compared with ==.
type Class struct {
	kind     Kind
	from, to uint8  // Exit
	name     string // Signal, Error
}

// Signals returns the names that may follow "signal:" in a class, sorted.
func Signals() []string { return slices.Clone(signals) }

var signals = []string{
	"ABRT", "ALRM", "BUS", "CHLD", "CONT", "FPE", "HUP", "ILL", "INT", "IO", "KILL", "PIPE", "PROF", "PWR", "QUIT", "SEGV",
	"STKFLT", "STOP", "SYS", "TERM", "TRAP", "TSTP", "TTIN", "TTOU", "URG", "USR1", "USR2", "VTALRM", "WINCH", "XCPU", "XFSZ",
}

const maxErrorName = 63

// ParseClass parses a failure class; the package documentation has the grammar.
// Package spec reports invalid classes to users, with a position and a hint.
func ParseClass(text string) (Class, error) {
	word, rest, hasRest := strings.Cut(text, ":")
	c := Class{kind: kindOf(word)}
	valid := false
	switch c.kind {
	case Timeout, Lost, Start, OOM:
		valid = !hasRest
	case Exit:
		c.from, c.to, valid = parseCodes(rest)
	case Signal:
		c.name = rest
		_, valid = slices.BinarySearch(signals, rest)
	case Error:
		c.name, valid = rest, isErrorName(rest)
	}
	if !valid {
		return Class{}, fmt.Errorf("invalid failure class %q", text)
	}
	return c, nil
}

// kindOf returns the kind with which a class starts, or 0.
func kindOf(word string) Kind {
	return Kind(max(0, slices.Index(kindNames[1:], word)+1)) //nolint:gosec // G115: a handful
}

// parseCodes parses an exit code, or an ascending range of them.
func parseCodes(codes string) (from, to uint8, ok bool) {
	low, high, isRange := strings.Cut(codes, "-")
	if !isRange {
		high = low
	}
	from, ok = exitCode(low)
	to, alsoOK := exitCode(high)
	return from, to, ok && alsoOK && from <= to
}

func exitCode(text string) (uint8, bool) {
	code, err := strconv.ParseUint(text, 10, 8)
	if err != nil || code == 0 || text[0] == '0' || text[0] == '+' {
		return 0, false
	}
	return uint8(code), true
}

func isErrorName(name string) bool {
	if name == "" || len(name) > maxErrorName {
		return false
	}
	for i := range len(name) {
		c := name[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || !strings.ContainsRune("0123456789_-.", rune(c))) {
			return false
		}
	}
	return true
}

// String returns the class in the grammar of ParseClass.
func (c Class) String() string {
	switch c.kind {
	case Exit:
		if c.from == c.to {
			return fmt.Sprintf("exit:%d", c.from)
		}
		return fmt.Sprintf("exit:%d-%d", c.from, c.to)
	case Signal, Error:
		return c.kind.String() + ":" + c.name
	case Timeout, Lost, Start, OOM:
		return c.kind.String()
	default:
		return "unset"
	}
}

// Matches reports whether the failure is in the class.
func (c Class) Matches(f Failure) bool {
	if c.kind == 0 || c.kind != f.Kind {
		return false
	}
	switch c.kind {
	case Exit:
		return int(c.from) <= f.Code && f.Code <= int(c.to)
	case Signal, Error:
		return c.name == f.Name
	case Timeout, Lost, Start, OOM:
		return true
	default:
		return false
	}
}
