// Package show formats the text that dtaskctl prints for people: tables, times, sizes
// and colors. It removes terminal escape sequences from untrusted text, and writes
// documents as YAML.
//
// A Printer collects text in memory. The package does no I/O and starts no
// goroutines.
package show
