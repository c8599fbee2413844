//go:build !linux && !darwin

package worker

// bootID returns "": this system has no known number of its start.
func bootID() string { return "" }
