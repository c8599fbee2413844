package coordinator

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/dtask/dtask/coordinator/api"
	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/internal/audit"
)

// diskParts are the parts of a data directory that are measured, in the order in which
// they are shown, and whether a name in it belongs to a part. The first match applies.
var diskParts = []struct {
	name string
	owns func(name string) bool
}{
	{"log", logstore.Owns},
	{"snapshots", raftnode.OwnsSnapshots},
	{"history", func(name string) bool { return strings.HasPrefix(name, historyName) }},
	{"audit", func(name string) bool { return name == audit.Directory }},
	{partQuarantined, datadir.IsQuarantined},
	{partOther, func(string) bool { return true }},
}

const (
	partOther       = "other"
	partQuarantined = "quarantined"
)

// disk measures the files of the data directory, and those that were quarantined.
func (r *replica) disk() (api.Disk, error) {
	var d api.Disk
	bytes := make(map[string]uint64)
	quarantined, err := datadir.Quarantined(r.cfg.DataDir)
	if err != nil {
		return d, err
	}
	// A quarantined directory is beside the data directory, or in it.
	for _, dir := range quarantined {
		if filepath.Dir(dir) == filepath.Clean(r.cfg.DataDir) {
			continue
		}
		if err := measure(dir, func(_ string, n uint64) { bytes[partQuarantined] += n }); err != nil {
			return d, err
		}
	}
	if err := measure(r.cfg.DataDir, func(name string, n uint64) { bytes[diskPart(name)] += n }); err != nil {
		return d, err
	}
	for _, p := range diskParts {
		d.Parts = append(d.Parts, api.DiskPart{Name: p.name, Bytes: bytes[p.name]})
	}
	d.Free, d.Size, err = raftnode.DiskSpace(r.cfg.DataDir)
	return d, err
}

// diskPart returns the part that a name in the data directory belongs to.
func diskPart(name string) string {
	for _, p := range diskParts {
		if p.owns(name) {
			return p.name
		}
	}
	return partOther
}

// measure calls add with the size in bytes of each file below a directory, and the first
// name of its path in there. Files may come and go meanwhile.
func measure(dir string, add func(name string, bytes uint64)) error {
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return ignoreMissing(err)
		}
		info, err := entry.Info()
		if err != nil {
			return ignoreMissing(err)
		}
		below, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name, _, _ := strings.Cut(below, string(filepath.Separator))
		add(name, uint64(info.Size())) //nolint:gosec // a size is positive
		return nil
	})
	if err != nil {
		return fmt.Errorf("measuring %s: %w", dir, err)
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
