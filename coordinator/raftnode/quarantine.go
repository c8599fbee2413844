package raftnode

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

// damagedMark is in the names of folders that were set aside.
const damagedMark = "damaged-"

// SetAside renames a data folder that is damaged to DIR.damaged-TIME, so that nothing
// serves from it and nothing in it is lost, and gives the new name. Where the folder
// cannot be renamed, such as a mount point, all that is in it goes into a folder
// damaged-TIME inside. It may hold the lock of this process.
func SetAside(dir string, now time.Time) (kept string, err error) {
	dir = filepath.Clean(dir)
	stamp := damagedMark + now.UTC().Format("20060102T150405.000Z")
	kept = dir + "." + stamp
	if err = renameNew(dir, kept); err == nil {
		return kept, durable.SyncDir(filepath.Dir(dir))
	}
	kept = filepath.Join(dir, stamp)
	if inside := moveInside(dir, kept); inside != nil {
		return "", fmt.Errorf("setting the damaged folder %s aside: %w", dir, errors.Join(err, inside))
	}
	return kept, durable.SyncDir(dir)
}

// renameNew renames only to a name that is free.
func renameNew(from, to string) error {
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is there already: %w", to, fs.ErrExist)
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
		if strings.HasPrefix(e.Name(), damagedMark) || e.Name() == lockName {
			continue // the lock is of whoever moves, and goes on to be held
		}
		if err := os.Rename(filepath.Join(dir, e.Name()), filepath.Join(kept, e.Name())); err != nil {
			return err
		}
	}
	return durable.SyncDir(kept)
}

// Aside lists the folders that were set aside of a data folder, the oldest first. While
// there is one, this replica must not found a cluster: it was part of one.
func Aside(dir string) ([]string, error) {
	dir = filepath.Clean(dir)
	var found []string
	for folder, prefix := range map[string]string{
		filepath.Dir(dir): filepath.Base(dir) + "." + damagedMark,
		dir:               damagedMark,
	} {
		entries, err := os.ReadDir(folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("looking for folders that were set aside: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() && strings.HasPrefix(e.Name(), prefix) {
				found = append(found, filepath.Join(folder, e.Name()))
			}
		}
	}
	slices.Sort(found)
	return found, nil
}
