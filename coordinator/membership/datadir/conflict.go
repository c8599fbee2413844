package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/internal/durable"
)

// ConflictName is the file that keeps a replica out of the cluster.
const ConflictName = "conflict.json"

// Conflict reports that a leader would have replaced log entries that this replica
// knew to be committed: the leader was elected without them, so a majority has lost
// what it had acknowledged. While a data directory has one, Raft must not run on it.
type Conflict struct {
	// Committed is the highest index that this replica knew to be committed, and
	// CommittedTerm the term of that entry; 0 if unknown.
	Committed     uint64 `json:"committed"`
	CommittedTerm uint64 `json:"committed_term"`
	// Truncated is the first index that would have been lost.
	Truncated uint64 `json:"truncated"`
	// Leader is the server id of the leader that would have replaced the entries, and
	// LeaderTerm its term.
	Leader     string `json:"leader"`
	LeaderTerm uint64 `json:"leader_term"`
	// Found is when this replica refused.
	Found time.Time `json:"found"`
}

// WriteConflict stores a conflict in a data directory, durably. It replaces an earlier
// one.
func WriteConflict(dir string, c Conflict) error {
	c.Found = c.Found.UTC()
	text, err := json.MarshalIndent(c, "", "  ")
	if err == nil {
		err = durable.ReplaceFile(filepath.Join(dir, ConflictName), append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("writing %s in data directory %s: %w", ConflictName, dir, err)
	}
	return nil
}

// ReadConflict returns the conflict of a data directory; nil if it has none. An
// unreadable file is a *logstore.DamageError: Raft must not run on that directory
// either.
func ReadConflict(dir string) (*Conflict, error) {
	path := filepath.Join(dir, ConflictName)
	text, err := os.ReadFile(path) //nolint:gosec // the operator names the directory
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // nil means none, as documented
	}
	if err != nil {
		return nil, fmt.Errorf("reading conflict: %w", err)
	}
	var c Conflict
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, &logstore.DamageError{Path: path, Detail: err.Error()}
	}
	return &c, nil
}

// ClearConflict removes the conflict of a data directory, durably. Without one it
// changes nothing.
func ClearConflict(dir string) error {
	err := os.Remove(filepath.Join(dir, ConflictName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = durable.SyncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("removing %s from data directory %s: %w", ConflictName, dir, err)
	}
	return nil
}
