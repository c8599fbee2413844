// Package exitstatus formats and parses how a command ended. A worker puts the text
// at the start of the error of a failed attempt, the API has no other form of it, and
// dtaskctl run --wait reads the exit code from there.
//
// The text is one of
//
//	exit code N
//	exit code 75 (temporary)
//	killed by SIGNAME
//	killed by SIGKILL, probably out of memory
//
// followed by nothing, or by ": " and the last line of the command's standard error.
package exitstatus

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Temporary is the exit code of a failure that is always retried (EX_TEMPFAIL of
// sysexits.h).
const Temporary = 75

// maxCode is the largest exit code of a process.
const maxCode = 255

const (
	codePrefix   = "exit code "
	signalPrefix = "killed by "
	temporary    = " (temporary)"
	outOfMemory  = ", probably out of memory"
	separator    = ": "
)

// A Status is how a command failed: with an exit code, or killed by a signal.
type Status struct {
	Code   int    // 1–255; 0 if a signal ended the command
	Signal string // such as SIGKILL, or SIG34 for a real-time signal; empty with a code
	OOM    bool   // SIGKILL, probably sent by the kernel for lack of memory
}

// String returns the status as Parse reads it.
func (s Status) String() string {
	switch {
	case s.OOM:
		return signalPrefix + "SIGKILL" + outOfMemory
	case s.Signal != "":
		return signalPrefix + s.Signal
	case s.Code == Temporary:
		return codePrefix + strconv.Itoa(s.Code) + temporary
	}
	return codePrefix + strconv.Itoa(s.Code)
}

// WithOutput returns the text of the status followed by the last line of the
// command's standard error, if that is not empty.
func (s Status) WithOutput(line string) string {
	if line == "" {
		return s.String()
	}
	return s.String() + separator + line
}

// ExitCode returns the code with which a shell reports the status: the exit code, or
// 128 plus the number of the signal.
func (s Status) ExitCode() int {
	if s.Signal == "" {
		return s.Code
	}
	n, _ := signalNumber(s.Signal)
	return 128 + n
}

// Parse parses the error of a failed attempt. It reports false for an error that is
// not about the end of a command, such as a timeout.
func Parse(text string) (Status, bool) {
	text, _, _ = strings.Cut(text, separator)
	if code, ok := strings.CutPrefix(text, codePrefix); ok {
		n, err := strconv.Atoi(strings.TrimSuffix(code, temporary))
		s := Status{Code: n}
		if err != nil || n < 1 || n > maxCode || s.String() != text {
			return Status{}, false
		}
		return s, true
	}
	name, ok := strings.CutPrefix(text, signalPrefix)
	if !ok {
		return Status{}, false
	}
	name, oom := strings.CutSuffix(name, outOfMemory)
	s := Status{Signal: name, OOM: oom}
	if _, known := signalNumber(name); !known || s.String() != text {
		return Status{}, false
	}
	return s, true
}

// signals are the names of signals by number on Linux, on which workers run commands.
// dtaskctl may run on a system that numbers them differently.
var signals = []string{
	1: "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
	"STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
	"PWR", "SYS",
}

// maxSignal is the highest real-time signal.
const maxSignal = 64

// signalNumber returns the number of a signal.
func signalNumber(name string) (int, bool) {
	short, ok := strings.CutPrefix(name, "SIG")
	if !ok || short == "" {
		return 0, false
	}
	if n := slices.Index(signals, short); n > 0 {
		return n, true
	}
	n, err := strconv.Atoi(short)
	return n, err == nil && n >= len(signals) && n <= maxSignal && name == fmt.Sprintf("SIG%d", n)
}
