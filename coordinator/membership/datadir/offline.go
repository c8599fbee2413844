package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dtask/dtask/internal/durable"
)

// rejoinName is a file that permits an empty directory to rejoin its cluster under a new
// server id, as --auto-rejoin does.
const rejoinName = "rejoin"

// Held is the data directory of a stopped replica, locked so that no process starts on
// it. It is read and not changed.
type Held struct {
	Path     string
	Identity Identity

	lock *os.File // nil if the directory has no lock file, as in a copy
}

// Hold locks a data directory for reading. It fails if the directory does not exist or
// has no identity, if a process uses it, or with a *FormatError.
func Hold(path string) (*Held, error) {
	path = filepath.Clean(path)
	if info, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", path, errors.Unwrap(err))
	} else if !info.IsDir() {
		return nil, fmt.Errorf("data directory %s: not a directory", path)
	}
	h := &Held{Path: path}
	lock, err := os.Open(filepath.Join(path, lockName)) //nolint:gosec // in the operator's directory
	switch {
	case err == nil:
		if err := lockFile(lock); err != nil {
			if errors.Is(err, errLocked) {
				err = fmt.Errorf("in use: stop the replica first: %w", err)
			}
			return nil, errors.Join(fmt.Errorf("data directory %s: %w", path, err), lock.Close())
		}
		h.lock = lock
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("opening lock: %w", err)
	}
	if h.Identity, err = readIdentity(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s has no %s: it is not the data directory of a replica", path, IdentityName)
		}
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// Close unlocks the directory.
func (h *Held) Close() error {
	if h.lock == nil {
		return nil
	}
	if err := errors.Join(unlockFile(h.lock), h.lock.Close()); err != nil {
		return fmt.Errorf("unlocking data directory: %w", err)
	}
	return nil
}

// IsQuarantined reports whether a path is that of a quarantined directory.
func IsQuarantined(path string) bool {
	name := filepath.Base(filepath.Clean(path))
	return strings.HasPrefix(name, quarantineMark) || strings.Contains(name, "."+quarantineMark)
}

// NewIdentity makes the identity of a new directory with Raft state.
func NewIdentity(serverID, clusterID string) Identity {
	return Identity{ServerID: serverID, Instance: newInstance(), ClusterID: clusterID, Stored: true}
}

// Create writes the identity of a directory that has none, durably.
func Create(path string, id Identity) error {
	if err := durable.ReplaceFile(filepath.Join(path, lockName), nil); err != nil {
		return fmt.Errorf("creating lock: %w", err)
	}
	return writeIdentity(path, id)
}

// Discard moves a directory aside, as Quarantine does, and leaves an empty one that may
// rejoin the cluster under a new server id. It returns where the content is.
func Discard(path string, now time.Time) (kept string, err error) {
	if kept, err = Quarantine(path, now); err != nil {
		return "", err
	}
	if err := durable.MakeDir(path); err != nil {
		return kept, err
	}
	if err := durable.ReplaceFile(filepath.Join(path, rejoinName), nil); err != nil {
		return kept, fmt.Errorf("permitting the replica to rejoin: %w", err)
	}
	return kept, nil
}

// MayRejoin reports whether Discard left this directory.
func MayRejoin(path string) (bool, error) {
	_, err := os.Stat(filepath.Join(path, rejoinName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
