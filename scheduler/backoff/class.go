package backoff

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Class is a set of failures that a retry policy names. Make one with
// ParseClass; the zero Class matches nothing. Classes can be compared with ==.
type Class struct {
	kind     Kind
	from, to uint8  // Exit
	name     string // Signal, Error
}

// Signals returns the names that a class may give after "signal:", sorted.
func Signals() []string { return slices.Clone(signals) }

var signals = []string{
	"ABRT", "ALRM", "BUS", "CHLD", "CONT", "FPE", "HUP", "ILL", "INT", "IO", "KILL", "PIPE", "PROF", "PWR", "QUIT", "SEGV",
	"STKFLT", "STOP", "SYS", "TERM", "TRAP", "TSTP", "TTIN", "TTOU", "URG", "USR1", "USR2", "VTALRM", "WINCH", "XCPU", "XFSZ",
}

const maxErrorName = 63

// ParseClass reads one class of failure; the package documentation has the
// grammar. Its error says what is wrong and what to write instead, and is meant
// for the author of a job file.
func ParseClass(text string) (Class, error) {
	word, rest, hasRest := strings.Cut(text, ":")
	kind := kindOf(word)
	switch kind {
	case Timeout, Lost, Start, OOM:
		if hasRest {
			return Class{}, fmt.Errorf("failure class %q: %s takes nothing after it; write %q", text, word, word)
		}
		return Class{kind: kind}, nil
	case Exit:
		return parseExit(text, rest)
	case Signal:
		return parseSignal(text, rest)
	case Error:
		if !isErrorName(rest) {
			return Class{}, fmt.Errorf("failure class %q: an error's name is a letter and then up to %d letters, digits, _, - or ., such as error:NotFound", text, maxErrorName-1)
		}
		return Class{kind: Error, name: rest}, nil
	default:
		return Class{}, fmt.Errorf("failure class %q is not known; write one of exit:CODE, exit:FROM-TO, signal:NAME, timeout, lost, start, oom, error:NAME", text)
	}
}

// kindOf returns the kind that a class begins with, or 0.
func kindOf(word string) Kind {
	for k := Exit; k <= Error; k++ {
		if k.String() == word {
			return k
		}
	}
	return 0
}

func parseExit(text, codes string) (Class, error) {
	low, high, isRange := strings.Cut(codes, "-")
	if !isRange {
		high = low
	}
	from, ok := exitCode(low)
	to, alsoOK := exitCode(high)
	switch {
	case !ok || !alsoOK:
		return Class{}, fmt.Errorf("failure class %q: an exit code is a number from 1 to 255, such as exit:2 or exit:1-3", text)
	case from > to:
		return Class{}, fmt.Errorf("failure class %q: the range is empty; write exit:%d-%d", text, to, from)
	}
	return Class{kind: Exit, from: from, to: to}, nil
}

func exitCode(text string) (uint8, bool) {
	code, err := strconv.ParseUint(text, 10, 8)
	if err != nil || code == 0 || text[0] == '0' || text[0] == '+' {
		return 0, false
	}
	return uint8(code), true
}

func parseSignal(text, name string) (Class, error) {
	if _, ok := slices.BinarySearch(signals, name); ok {
		return Class{kind: Signal, name: name}, nil
	}
	meant := strings.TrimPrefix(strings.ToUpper(name), "SIG")
	if _, ok := slices.BinarySearch(signals, meant); ok {
		return Class{}, fmt.Errorf("failure class %q: write signal:%s", text, meant)
	}
	return Class{}, fmt.Errorf("failure class %q: there is no such signal; write a name such as signal:KILL", text)
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

// String returns the class as ParseClass reads it.
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
