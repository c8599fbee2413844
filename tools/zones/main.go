// Command zones writes the embedded time zones of internal/zoneinfo from the zone
// files that the Go toolchain ships. Run it when the toolchain has a new version of
// them:
//
//	make zones
package main

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: zones FILE")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "zones:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, path string) error {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("asking for GOROOT: %w", err)
	}
	dir := filepath.Join(strings.TrimSpace(string(root)), "lib", "time")
	version, err := release(filepath.Join(dir, "update.bash"))
	if err != nil {
		return err
	}
	zones, err := read(filepath.Join(dir, "zoneinfo.zip"))
	if err != nil {
		return err
	}
	packed, err := pack(version, zones)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, packed, 0o644); err != nil { //nolint:gosec // a source file
		return fmt.Errorf("writing zones: %w", err)
	}
	return nil
}

// release returns the version of the time zone database, such as 2025c, from the
// script that the toolchain's authors update it with.
func release(path string) (string, error) {
	text, err := os.ReadFile(path) //nolint:gosec // of the toolchain
	if err != nil {
		return "", fmt.Errorf("reading the version: %w", err)
	}
	m := regexp.MustCompile(`(?m)^DATA=(\d{4}[a-z]+)$`).FindSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("%s does not state the version of the data", path)
	}
	return string(m[1]), nil
}

// zone is a file of the archive.
type zone struct {
	name string
	data []byte
}

// read returns all zones, sorted by name.
func read(path string) ([]zone, error) {
	archive, err := zip.OpenReader(path)
	if err != nil {
		return nil, fmt.Errorf("opening zones: %w", err)
	}
	defer func() { _ = archive.Close() }()
	var zones []zone
	for _, f := range archive.File {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		data, err := content(f)
		if err != nil {
			return nil, fmt.Errorf("reading zone %s: %w", f.Name, err)
		}
		zones = append(zones, zone{f.Name, data})
	}
	slices.SortFunc(zones, func(a, b zone) int { return strings.Compare(a.name, b.name) })
	return zones, nil
}

func content(f *zip.File) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	data, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return nil, err
	}
	return slim(data)
}

// slim returns a zone file without the 32-bit data in front of its 64-bit data
// (RFC 9636 §3.1: header, 32-bit data, header, 64-bit data, footer).
func slim(data []byte) ([]byte, error) {
	const header = 44
	if len(data) < header || string(data[:4]) != "TZif" || data[4] < '2' {
		return nil, errors.New("not a zone file of version 2 or later")
	}
	var counts [6]int // as in the header: UT flags, standard flags, leap seconds, transitions, types, characters
	for i := range counts {
		counts[i] = int(binary.BigEndian.Uint32(data[20+4*i:]))
	}
	size := counts[3]*5 + counts[4]*6 + counts[5] + counts[2]*8 + counts[1] + counts[0]
	if size > len(data)-header {
		return nil, errors.New("zone file is cut off")
	}
	empty := slices.Concat(data[:20], make([]byte, 24))
	return slices.Concat(empty, data[header+size:]), nil
}

// pack writes the version, a line "name offset length" for each zone, an empty line,
// and the data that the lines refer to. Equal data exists once.
func pack(version string, zones []zone) ([]byte, error) {
	var head, body bytes.Buffer
	fmt.Fprintf(&head, "%s\n", version)
	known := map[string]int{}
	for _, z := range zones {
		at, found := known[string(z.data)]
		if !found {
			at = body.Len()
			known[string(z.data)] = at
			body.Write(z.data)
		}
		fmt.Fprintf(&head, "%s %d %d\n", z.name, at, len(z.data))
	}
	head.WriteByte('\n')
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, fmt.Errorf("packing: %w", err)
	}
	for _, part := range [][]byte{head.Bytes(), body.Bytes()} {
		if _, err := w.Write(part); err != nil {
			return nil, fmt.Errorf("packing: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("packing: %w", err)
	}
	return packed.Bytes(), nil
}
