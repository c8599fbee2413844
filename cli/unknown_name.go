package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/spec"
)

// nameFlags makes the faults of a job name the flags --queue and --uses, if these name the queue or
// the limit that is unknown.
func nameFlags(err error, queue string, uses []string) {
	details, ok := errors.AsType[*client.Error](err)
	if !ok {
		return
	}
	for i, fault := range details.Faults {
		if name, _, ok := quotedAfter(fault, unknownQueue); ok && name == queue {
			details.Faults[i] = "--queue" + strings.TrimPrefix(fault, "job.queue")
		}
		if use := unknownUse(fault); use != "" && slices.Contains(uses, use) {
			details.Faults[i] = "--" + fault
		}
	}
}

// locateNames adds file, line and column to the faults of a job whose queue, or a limit that
// it uses, is unknown. Only the coordinators know these, and they don't have the file.
func locateNames(err error, paths []string) {
	details, ok := errors.AsType[*client.Error](err)
	if !ok {
		return
	}
	for i, fault := range details.Faults {
		position := positionOf(fault)
		if position == nil {
			continue
		}
		for _, path := range paths {
			text, err := os.ReadFile(path) //nolint:gosec // the user's own file
			if err != nil {
				continue // standard input, or a file that is gone
			}
			if line, column := position(text); line > 0 {
				details.Faults[i] = fmt.Sprintf("%s:%d:%d: %s", path, line, column, fault)
				break
			}
		}
	}
}

// positionOf returns a function that finds the name which a fault is about in a job file; nil
// for other faults.
func positionOf(fault string) func(text []byte) (line, column int) {
	if name, _, ok := quotedAfter(fault, unknownQueue); ok {
		return func(text []byte) (int, int) { return spec.QueuePosition(text, name) }
	}
	if use := unknownUse(fault); use != "" {
		return func(text []byte) (int, int) { return spec.UsePosition(text, use) }
	}
	return nil
}

// unknownQueue is how the fault of a job in an unknown queue begins.
const unknownQueue = "job.queue: unknown queue "

// unknownUse returns what a task uses, of a fault about an unknown limit; empty for other faults.
func unknownUse(fault string) string {
	use, rest, _ := quotedAfter(fault, "uses: unknown limit ")
	if keyed, _, ok := quotedAfter(rest, ", which "); ok {
		use = keyed
	}
	return use
}

// quotedAfter returns the quoted text that follows a prefix, and what follows it.
func quotedAfter(s, prefix string) (text, rest string, ok bool) {
	rest, ok = strings.CutPrefix(s, prefix)
	if !ok {
		return "", "", false
	}
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return "", "", false
	}
	text, err = strconv.Unquote(quoted)
	return text, rest[len(quoted):], err == nil
}
