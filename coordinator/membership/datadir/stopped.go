package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dtask/dtask/internal/durable"
)

// StoppedName is the file that an orderly stop leaves in a data directory.
const StoppedName = "stopped.json"

// stoppedJSON is the content of stopped.json.
type stoppedJSON struct {
	LastIndex uint64 `json:"last_index"` // of the log
}

// MarkStopped records, durably, that the replica stopped in an orderly way when its log
// ended at an index.
func MarkStopped(dir string, last uint64) error {
	text, err := json.Marshal(stoppedJSON{LastIndex: last})
	if err == nil {
		err = durable.ReplaceFile(filepath.Join(dir, StoppedName), append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("recording the stop in data directory %s: %w", dir, err)
	}
	return nil
}

// TakeStopped reports whether the replica stopped in an orderly way when its log ended
// at an index, and removes that record, durably. A record that is unreadable or of
// another index counts as none.
func TakeStopped(dir string, last uint64) (orderly bool, err error) {
	path := filepath.Join(dir, StoppedName)
	text, err := os.ReadFile(path) //nolint:gosec // the operator names the directory
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err == nil {
		err = durable.SyncDir(dir)
	}
	if err != nil {
		return false, fmt.Errorf("removing the record of the last stop: %w", err)
	}
	var s stoppedJSON
	return json.Unmarshal(text, &s) == nil && s.LastIndex == last, nil
}
