package raftnode

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
	identityName = "identity.json"
	lockName     = "lock"
	// identityVersion is the format of identity.json. Changing the meaning of
	// a field needs a new one.
	identityVersion = 1
)

// Identity says whose a data folder is.
type Identity struct {
	ServerID string // the replica that the folder belongs to
	// Configured is the server id that the operator starts it with, if the cluster
	// gave it another one because the folder under that id was lost.
	Configured string
	Instance   string // 128 random bits in hex, made once with the folder
	ClusterID  string // "" until it is learnt; it never changes after that
	// Stored is true once the folder has held raft state. If the state is gone
	// later, the folder was damaged, not new.
	Stored bool
	// Instances are those of the other replicas, by server id, as far as they are
	// known: a replica that has just started has not applied its log yet, and must
	// not believe a wiped one meanwhile. It must not be changed.
	Instances map[string]string
}

// Base returns the server id on the command line.
func (i Identity) Base() string {
	if i.Configured != "" {
		return i.Configured
	}
	return i.ServerID
}

// identityJSON is the file's form.
type identityJSON struct {
	Version      int    `json:"version"`
	ServerID     string `json:"server_id"`
	ConfiguredID string `json:"configured_id,omitempty"`
	Instance     string `json:"instance"`
	ClusterID    string `json:"cluster_id,omitempty"`
	Stored       bool   `json:"stored,omitempty"`

	Instances map[string]string `json:"instances,omitempty"`
}

// IdentityFile is a data folder's identity, locked for this process. Its methods
// are safe for concurrent use.
type IdentityFile struct {
	dir  string
	lock *os.File

	mu sync.Mutex // guards id, and orders writes of the file
	id Identity
}

// OpenIdentity locks dir for this process and reads its identity, or makes one for
// serverID. The folder must exist. It fails when another process holds the
// folder or when it belongs to another server id.
func OpenIdentity(dir, serverID string) (*IdentityFile, error) {
	if serverID == "" {
		return nil, errors.New("raftnode: server id is empty")
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the operator names the folder
	if err != nil {
		return nil, fmt.Errorf("opening lock of data folder: %w", err)
	}
	if err := lockFile(lock); err != nil {
		return nil, errors.Join(fmt.Errorf("data folder %s is used by another process: %w", dir, err), lock.Close())
	}
	f := &IdentityFile{dir: dir, lock: lock}
	if err := f.load(serverID); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return f, nil
}

func (f *IdentityFile) load(serverID string) error {
	path := filepath.Join(f.dir, identityName)
	text, err := os.ReadFile(path) //nolint:gosec // the operator names the folder
	if errors.Is(err, fs.ErrNotExist) {
		return f.create(serverID)
	}
	if err != nil {
		return fmt.Errorf("reading identity: %w", err)
	}
	var j identityJSON
	if err := json.Unmarshal(text, &j); err != nil {
		return &logstore.DamageError{Path: path, Detail: err.Error()}
	}
	switch {
	case j.Version != identityVersion:
		return fmt.Errorf("%s has format %d, this program knows %d", path, j.Version, identityVersion)
	case j.ServerID == "" || j.Instance == "":
		return &logstore.DamageError{Path: path, Detail: "server id or instance is missing"}
	case j.ServerID != serverID && j.ConfiguredID != serverID:
		return fmt.Errorf("data folder %s belongs to server %s, not to %s: start %s with its own folder", f.dir, j.ServerID, serverID, serverID)
	}
	f.id = Identity{ServerID: j.ServerID, Configured: j.ConfiguredID, Instance: j.Instance, ClusterID: j.ClusterID, Stored: j.Stored, Instances: j.Instances}
	return nil
}

// create makes the identity of a new folder. A folder with raft state and without
// an identity is not new: somebody lost the file, and a fresh instance would be
// refused by the others for reasons that nobody would understand.
func (f *IdentityFile) create(serverID string) error {
	if _, err := os.Stat(filepath.Join(f.dir, logstore.FileName)); err == nil {
		return &logstore.DamageError{Path: f.dir, Detail: fmt.Sprintf("%s is there, but %s is missing", logstore.FileName, identityName)}
	}
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		return fmt.Errorf("making instance: %w", err)
	}
	return f.write(Identity{ServerID: serverID, Instance: hex.EncodeToString(random[:])})
}

// Rename gives a folder that has held no raft state yet to another server id, which the
// cluster chose; the operator goes on to start it under the one it has.
func (f *IdentityFile) Rename(serverID, clusterID string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := f.id
	switch {
	case next.Stored:
		return fmt.Errorf("the folder of server %s holds raft state: it cannot become server %s", next.ServerID, serverID)
	case next.ClusterID != "" && next.ClusterID != clusterID:
		return fmt.Errorf("%w: it is %s, not %s", ErrClusterKnown, next.ClusterID, clusterID)
	}
	next.Configured, next.ServerID, next.ClusterID = next.Base(), serverID, clusterID
	return f.write(next)
}

// Get returns the identity as it is now.
func (f *IdentityFile) Get() Identity {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.id
}

// SetClusterID records, durably, the cluster that the folder belongs to. To repeat
// the same id is fine; another one is ErrClusterKnown.
func (f *IdentityFile) SetClusterID(clusterID string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.id.ClusterID {
	case clusterID:
		return nil
	case "":
		next := f.id
		next.ClusterID = clusterID
		return f.write(next)
	default:
		return fmt.Errorf("%w: it is %s, not %s", ErrClusterKnown, f.id.ClusterID, clusterID)
	}
}

// SetInstances records, durably, which instances the other replicas are. The map must
// not be changed afterwards.
func (f *IdentityFile) SetInstances(instances map[string]string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if maps.Equal(instances, f.id.Instances) {
		return nil
	}
	next := f.id
	next.Instances = instances
	return f.write(next)
}

// markStored records that the folder holds raft state from now on.
func (f *IdentityFile) markStored() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.id.Stored {
		return nil
	}
	next := f.id
	next.Stored = true
	return f.write(next)
}

// Close gives the folder free for another process.
func (f *IdentityFile) Close() error {
	if err := errors.Join(unlockFile(f.lock), f.lock.Close()); err != nil {
		return fmt.Errorf("unlocking data folder: %w", err)
	}
	return nil
}

// write replaces the file so that a crash leaves the old or the new one, whole.
func (f *IdentityFile) write(id Identity) error {
	text, err := json.MarshalIndent(identityJSON{
		Version: identityVersion, ServerID: id.ServerID, ConfiguredID: id.Configured, Instance: id.Instance, ClusterID: id.ClusterID, Stored: id.Stored, Instances: id.Instances,
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding identity: %w", err)
	}
	if err := durable.ReplaceFile(filepath.Join(f.dir, identityName), append(text, '\n')); err != nil {
		return fmt.Errorf("writing identity: %w", err)
	}
	f.id = id
	return nil
}
