// Package zoneinfo has the time zones of the IANA database, embedded in the program, so
// that every replica and every client computes with the same rules, whatever the machine
// has installed. [Version] states the version of the data.
//
// The file zones.gz is written by tools/zones (make zones) from the zone files that the
// Go toolchain ships. Zones with equal data share it. The package reads no other file,
// has no clock and starts no goroutines. It is safe for concurrent use.
package zoneinfo

import (
	"bytes"
	"compress/gzip"
	_ "embed" // zones.gz
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed zones.gz
var packed []byte

// A database is the unpacked file.
type database struct {
	version string
	zones   map[string][]byte // zone files by name; equal ones share memory
	names   []string          // sorted
}

// unpacked is the database; it takes some 2 ms and 230 kB once.
var unpacked = sync.OnceValue(func() *database {
	db, err := unpack(packed)
	if err != nil {
		panic("embedded time zones: " + err.Error()) // the file is part of the program, and tested
	}
	return db
})

// unpack reads a file that tools/zones has written: the version, a line "name offset
// length" for each zone, an empty line, and the data.
func unpack(packed []byte) (*database, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("unpacking: %w", err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("unpacking: %w", err)
	}
	head, data, _ := bytes.Cut(text, []byte("\n\n"))
	version, list, _ := strings.Cut(string(head), "\n")
	db := &database{version: version, zones: map[string][]byte{}}
	for line := range strings.Lines(list) {
		words := strings.Fields(line)
		if len(words) != 3 {
			return nil, fmt.Errorf("invalid line %q", line)
		}
		at, err := strconv.Atoi(words[1])
		size, err2 := strconv.Atoi(words[2])
		if err != nil || err2 != nil || at < 0 || size < 0 || at > len(data) || size > len(data)-at {
			return nil, fmt.Errorf("invalid line %q", line)
		}
		db.zones[words[0]] = data[at : at+size : at+size]
	}
	db.names = slices.Sorted(maps.Keys(db.zones))
	return db, nil
}

// Version returns the version of the IANA database, such as 2025c.
func Version() string { return unpacked().version }

// Names returns the names of all zones, sorted.
func Names() []string { return slices.Clone(unpacked().names) }

// loaded are the zones that were used, by name: *time.Location.
var loaded sync.Map

// Load returns the zone with a name such as Europe/Berlin or UTC. Names are
// case-sensitive. The error is [*UnknownError].
func Load(name string) (*time.Location, error) {
	if name == "UTC" {
		return time.UTC, nil
	}
	known, _ := loaded.Load(name)
	if zone, ok := known.(*time.Location); ok {
		return zone, nil
	}
	data, ok := unpacked().zones[name]
	if !ok {
		return nil, &UnknownError{Name: name, Suggestion: suggest(name)}
	}
	zone, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		panic("embedded time zones: " + name + ": " + err.Error()) // tested for every zone
	}
	loaded.Store(name, zone)
	return zone, nil
}
