package fsm

import "slices"

// The labels that each worker has by itself.
const (
	WorkerLabel    = "worker"    // its name
	HostLabel      = "host"      // its host name
	OSLabel        = "os"        // its operating system
	ArchLabel      = "arch"      // its architecture
	IsolationLabel = "isolation" // of commands from each other and from the worker
)

// AutomaticLabels are their names, sorted.
var AutomaticLabels = []string{ArchLabel, HostLabel, IsolationLabel, OSLabel, WorkerLabel}

// IsAutomaticLabel reports whether workers have labels with this key by themselves.
func IsAutomaticLabel(key string) bool { return slices.Contains(AutomaticLabels, key) }
