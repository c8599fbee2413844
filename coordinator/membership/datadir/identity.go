package datadir

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/internal/durable"
)

const (
	// IdentityName is the file that makes a directory a replica's.
	IdentityName = "identity.json"
	lockName     = "lock"
)

// Format is the number of the data directory format: of identity.json, the log
// store, the log entries, the snapshots and the history together. A build reads its
// own format only. A change that an older or newer build would misread needs a new
// number.
const Format = 4

// errLocked means that another process has the directory open.
var errLocked = errors.New("used by another process; one replica per data directory")

// ErrClusterKnown is returned if the directory belongs to another cluster. The
// replica must not start.
var ErrClusterKnown = errors.New("data directory belongs to another cluster")

// FormatError is returned for a directory of another build. The directory is not
// damaged, and nothing in it was changed.
type FormatError struct {
	Dir   string
	Found int // 0 = it has no number
}

// Error names both formats and the way out.
func (e *FormatError) Error() string {
	return fmt.Sprintf("data directory %s has format %d, and this build requires format %d: start with an empty --data-dir, "+
		"or run the build that wrote it; nothing in the directory was changed", e.Dir, e.Found, Format)
}

// Identity tells to which replica a data directory belongs.
type Identity struct {
	ServerID string
	// Configured is the server id on the command line if the cluster gave this
	// replica another one.
	Configured string
	Instance   string // 128 random bits in hex, made once for the directory
	ClusterID  string // "" while unknown; constant afterwards
	// Stored is true once the directory has had Raft state. A stored directory
	// without state is damaged, not new.
	Stored bool
	// Instances are those of the other replicas, by server id, as far as known: a
	// replica that just started has not applied its log, and must still reject a
	// peer that lost its directory. Read only.
	Instances map[string]string
	// Members are the addresses of the other replicas, by server id, in the last
	// configuration of the cluster that this replica knew; empty = unknown. Read only.
	Members map[string]string
	// Level is the cluster's feature level, and LevelVersion the version of the build
	// that stored it; 0 and empty until the level is above 1.
	Level        uint32
	LevelVersion string
}

// Base returns the server id on the command line.
func (i Identity) Base() string {
	if i.Configured != "" {
		return i.Configured
	}
	return i.ServerID
}

// identityJSON is the content of identity.json.
type identityJSON struct {
	Format       int    `json:"version"`
	ServerID     string `json:"server_id"`
	ConfiguredID string `json:"configured_id,omitempty"`
	Instance     string `json:"instance"`
	ClusterID    string `json:"cluster_id,omitempty"`
	Stored       bool   `json:"stored,omitempty"`

	Instances map[string]string `json:"instances,omitempty"`
	Members   map[string]string `json:"members,omitempty"`

	Level        uint32 `json:"level,omitempty"`
	LevelVersion string `json:"level_version,omitempty"`
}

// Dir is a data directory, locked for this process. Its methods are safe for
// concurrent use.
type Dir struct {
	path string
	lock *os.File

	mu sync.Mutex // guards id, and orders writes of the file
	id Identity
}

// Open locks the directory path, which must exist, and reads its identity, or makes
// one for serverID. It fails if another process uses the directory, if the directory
// belongs to another server id, or with a *FormatError.
func Open(path, serverID string) (*Dir, error) {
	if serverID == "" {
		return nil, errors.New("datadir: server id is empty")
	}
	name := filepath.Join(path, lockName)
	lock, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // in the operator's directory
	if err != nil {
		return nil, fmt.Errorf("opening lock: %w", err)
	}
	if err := lockFile(lock); err != nil {
		return nil, errors.Join(
			fmt.Errorf("data directory %s: %w", path, err), lock.Close())
	}
	d := &Dir{path: path, lock: lock}
	if err := d.load(serverID); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
}

func (d *Dir) load(serverID string) error {
	id, err := readIdentity(d.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d.create(serverID)
	case err != nil:
		return err
	case id.ServerID != serverID && id.Configured != serverID:
		return fmt.Errorf("data directory %s belongs to server %s, not to %s: use another --data-dir", d.path, id.ServerID, serverID)
	}
	d.id = id
	return nil
}

// create makes the identity of a new directory. A directory with Raft state and
// without an identity is not new: the file was lost, and the cluster would refuse a
// new instance.
func (d *Dir) create(serverID string) error {
	if _, err := os.Stat(filepath.Join(d.path, logstore.FileName)); err == nil {
		return &logstore.DamageError{
			Path:   d.path,
			Detail: fmt.Sprintf("it has %s but no %s", logstore.FileName, IdentityName),
		}
	}
	return d.write(Identity{ServerID: serverID, Instance: newInstance()})
}

// Identity returns the current identity.
func (d *Dir) Identity() Identity {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.id
}

// update writes a changed identity, durably. Nothing is written if change returns
// false.
func (d *Dir) update(change func(*Identity) (changed bool, err error)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.id
	changed, err := change(&next)
	if err != nil || !changed {
		return err
	}
	return d.write(next)
}

// Rename gives a directory without Raft state to another server id, which the
// cluster chose. The operator continues to start it under the configured one.
func (d *Dir) Rename(serverID, clusterID string) error {
	return d.update(func(id *Identity) (bool, error) {
		switch {
		case id.Stored:
			return false, fmt.Errorf("the data directory of server %s has Raft state: it cannot become server %s", id.ServerID, serverID)
		case id.ClusterID != "" && id.ClusterID != clusterID:
			return false, fmt.Errorf("%w: %s, not %s", ErrClusterKnown, id.ClusterID, clusterID)
		}
		id.Configured, id.ServerID, id.ClusterID = id.Base(), serverID, clusterID
		return true, nil
	})
}

// SetClusterID records the cluster that the directory belongs to. Another one than
// before is ErrClusterKnown.
func (d *Dir) SetClusterID(clusterID string) error {
	return d.update(func(id *Identity) (bool, error) {
		if id.ClusterID != "" && id.ClusterID != clusterID {
			return false, fmt.Errorf("%w: %s, not %s", ErrClusterKnown, id.ClusterID, clusterID)
		}
		changed := id.ClusterID != clusterID
		id.ClusterID = clusterID
		return changed, nil
	})
}

// SetOthers records the instances and the addresses of the other replicas. The maps must
// not change afterwards.
func (d *Dir) SetOthers(instances, members map[string]string) error {
	return d.update(func(id *Identity) (bool, error) {
		changed := !maps.Equal(instances, id.Instances) || !maps.Equal(members, id.Members)
		id.Instances, id.Members = instances, members
		return changed, nil
	})
}

// SetLevel records the cluster's feature level, and the version of the build that
// supports it. A lower level changes nothing: this replica may not have applied its log
// yet.
func (d *Dir) SetLevel(level uint32, version string) error {
	return d.update(func(id *Identity) (bool, error) {
		if level <= id.Level {
			return false, nil
		}
		id.Level, id.LevelVersion = level, version
		return true, nil
	})
}

// MarkStored records that the directory has Raft state from now on.
func (d *Dir) MarkStored() error {
	return d.update(func(id *Identity) (bool, error) {
		changed := !id.Stored
		id.Stored = true
		return changed, nil
	})
}

// Close unlocks the directory.
func (d *Dir) Close() error {
	if err := errors.Join(unlockFile(d.lock), d.lock.Close()); err != nil {
		return fmt.Errorf("unlocking data directory: %w", err)
	}
	return nil
}

// write replaces the identity.
func (d *Dir) write(id Identity) error {
	if err := writeIdentity(d.path, id); err != nil {
		return err
	}
	d.id = id
	return nil
}

func newInstance() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
}

// readIdentity reads the identity of a directory. The error is fs.ErrNotExist if it has
// none, a *FormatError, or a *logstore.DamageError.
func readIdentity(dir string) (Identity, error) {
	path := filepath.Join(dir, IdentityName)
	text, err := os.ReadFile(path) //nolint:gosec // the operator names the directory
	if err != nil {
		return Identity{}, fmt.Errorf("reading identity: %w", err)
	}
	// Decode only the format number first: other formats may have other fields.
	var format struct {
		Format int `json:"version"`
	}
	if err := json.Unmarshal(text, &format); err != nil {
		return Identity{}, &logstore.DamageError{Path: path, Detail: err.Error()}
	}
	if format.Format != Format {
		return Identity{}, &FormatError{Dir: dir, Found: format.Format}
	}
	var j identityJSON
	err = json.Unmarshal(text, &j)
	switch {
	case err != nil:
		return Identity{}, &logstore.DamageError{Path: path, Detail: err.Error()}
	case j.ServerID == "" || j.Instance == "":
		return Identity{}, &logstore.DamageError{Path: path, Detail: "server id or instance is missing"}
	}
	return Identity{
		ServerID: j.ServerID, Configured: j.ConfiguredID, Instance: j.Instance,
		ClusterID: j.ClusterID, Stored: j.Stored, Instances: j.Instances, Members: j.Members,
		Level: j.Level, LevelVersion: j.LevelVersion,
	}, nil
}

// writeIdentity replaces the identity of a directory so that a crash leaves the old or
// the new one complete.
func writeIdentity(dir string, id Identity) error {
	text, err := json.MarshalIndent(identityJSON{
		Format: Format, ServerID: id.ServerID, ConfiguredID: id.Configured, Instance: id.Instance,
		ClusterID: id.ClusterID, Stored: id.Stored, Instances: id.Instances, Members: id.Members,
		Level: id.Level, LevelVersion: id.LevelVersion,
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding identity: %w", err)
	}
	if err := durable.ReplaceFile(filepath.Join(dir, IdentityName), append(text, '\n')); err != nil {
		return fmt.Errorf("writing identity: %w", err)
	}
	return nil
}
