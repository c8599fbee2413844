package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dtask/dtask/internal/durable"
)

// quarantineMark is in the names of quarantined directories.
const quarantineMark = "damaged-"

// setupNames are what dtaskd init and join store in a data directory: the settings and the
// certificate. A replica needs them to start again, and neither is its data.
var setupNames = []string{"dtaskd.yaml", "tls"}

// Quarantine renames a damaged data directory to DIR.damaged-TIME, so that nothing is
// served from it and nothing in it is lost, and returns the new name. If the
// directory cannot be renamed, for example because it is a mount point, or if it has the
// settings of this replica, which stay, its files move into a directory damaged-TIME
// inside it. This process may hold its lock.
func Quarantine(dir string, now time.Time) (kept string, err error) {
	dir = filepath.Clean(dir)
	stamp := quarantineMark + now.UTC().Format("20060102T150405.000Z")
	if !hasSetup(dir) {
		kept = dir + "." + stamp
		if err = renameNew(dir, kept); err == nil {
			return kept, durable.SyncDir(filepath.Dir(dir))
		}
	}
	kept = filepath.Join(dir, stamp)
	if inside := moveInside(dir, kept); inside != nil {
		return "", fmt.Errorf("quarantining data directory %s: %w", dir, errors.Join(err, inside))
	}
	return kept, durable.SyncDir(dir)
}

// hasSetup reports whether a data directory has the settings of its replica.
func hasSetup(dir string) bool {
	return slices.ContainsFunc(setupNames, func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	})
}

// renameNew renames to a name that does not exist yet.
func renameNew(from, to string) error {
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", to, fs.ErrExist)
	}
	return os.Rename(from, to)
}

func moveInside(dir, kept string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if err := os.Mkdir(kept, 0o700); err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), quarantineMark) || e.Name() == lockName {
			continue // this process continues to hold the lock
		}
		if slices.Contains(setupNames, e.Name()) {
			continue
		}
		if err := os.Rename(filepath.Join(dir, e.Name()), filepath.Join(kept, e.Name())); err != nil {
			return err
		}
	}
	return durable.SyncDir(kept)
}

// Quarantined lists the quarantined directories of a data directory, the oldest
// first. A replica that has one was part of a cluster and must not bootstrap another.
func Quarantined(dir string) ([]string, error) {
	dir = filepath.Clean(dir)
	var found []string
	for parent, prefix := range map[string]string{
		filepath.Dir(dir): filepath.Base(dir) + "." + quarantineMark,
		dir:               quarantineMark,
	} {
		entries, err := os.ReadDir(parent)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("listing quarantined directories: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() && strings.HasPrefix(e.Name(), prefix) {
				found = append(found, filepath.Join(parent, e.Name()))
			}
		}
	}
	slices.Sort(found)
	return found, nil
}
