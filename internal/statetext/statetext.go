// Package statetext phrases the states of tasks and jobs in English, for the messages of
// the coordinators and of dtaskctl.
//
// It takes states by their names in JSON, because the protocol and the replicated state
// have types of their own for them. The package does no I/O and starts no goroutines.
package statetext

import "strings"

// Predicate returns a state as the predicate of a sentence that starts with the task or
// the job: "has failed", "was cancelled", "is running".
func Predicate(state string) string {
	switch state {
	case "completed", "failed":
		return "has " + state
	case "aggregated":
		return "has completed" // aggregated is a detail of where its result is
	case "cancelled", "lost":
		return "was " + state
	}
	return "is " + state
}

// Skipped reports whether a task was cancelled because it was not needed. reason is the
// error of the cancelled task.
func Skipped(reason string) bool { return strings.HasPrefix(reason, "skipped: ") }
