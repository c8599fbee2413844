package main

import (
	"os"
	"runtime"
	"strings"
)

// A machine describes where figures were measured.
type machine struct {
	Cores    int    `json:"cores"`
	CPU      string `json:"cpu"` // model; empty if unknown
	System   string `json:"system"`
	Go       string `json:"go"`
	MemoryKB string `json:"memory,omitempty"`
	Note     string `json:"note,omitempty"`
}

func thisMachine(note string) machine {
	m := machine{Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Note: note}
	m.CPU = field("/proc/cpuinfo", "model name")
	m.MemoryKB = field("/proc/meminfo", "MemTotal")
	return m
}

// field returns the value of a name in a file; empty if missing.
func field(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
