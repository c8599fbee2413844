// Package durable creates directories and files whose names survive a power cut. A file
// that is synced can still disappear: its name is durable only after the directory that
// contains it is synced as well.
package durable
