package check

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	raftwal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/types"
)

// listInStore keeps the list of segments in the store, as dtaskd does.
type listInStore struct{ *raftboltdb.BoltStore }

func (s listInStore) Load(string) (state types.PersistentState, err error) { return state, nil }

func (s listInStore) CommitState(state types.PersistentState) error {
	text, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	return s.Set([]byte(segmentsKey), append(make([]byte, checksumSize), text...))
}

func (s listInStore) GetStable([]byte) ([]byte, error) { return nil, nil }
func (s listInStore) SetStable(_, _ []byte) error      { return nil }
func (s listInStore) Close() error                     { return nil }

// segmented is a replica whose log is in segments, some of which were removed at both
// ends.
func segmented(t *testing.T, entries ...*raft.Log) Replica {
	t.Helper()
	r := replica(t, "n2")
	store, err := raftboltdb.NewBoltStore(filepath.Join(r.Dir, storeFile))
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(r.Dir, segmentsDirectory)
	if err := errors.Join(store.Set([]byte(kindKey), append(make([]byte, checksumSize), kindWAL...)), os.Mkdir(folder, 0o700)); err != nil {
		t.Fatal(err)
	}
	log, err := raftwal.Open(folder, raftwal.WithMetaStore(listInStore{store}), raftwal.WithSegmentSize(1<<10))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range append(entries, entry(entries[len(entries)-1].Index+1, 9, "never committed")) {
		if err := log.StoreLog(e); err != nil {
			t.Fatal(err)
		}
	}
	last := entries[len(entries)-1].Index
	if err := errors.Join(log.DeleteRange(1, 2), log.DeleteRange(last+1, last+1), log.Close(), store.Close()); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestALogInSegmentsIsReadCompletely(t *testing.T) {
	t.Parallel()
	var all []*raft.Log
	for i := range uint64(40) {
		all = append(all, entry(i+1, 1, fmt.Sprintf("%0100d", i)))
	}
	r := segmented(t, all...)
	faults, depth, err := Logs([]Replica{replica(t, "n1", all...), r})
	if err != nil || len(faults) > 0 || depth.Entries != 78 || depth.Compared != 38 {
		t.Errorf("got faults %v, depth %s, %v; want none, and 38 pairs compared", faults, depth, err)
	}
	files, err := filepath.Glob(filepath.Join(r.Dir, segmentsDirectory, "*.wal"))
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	content, err := os.ReadFile(files[1])
	if err != nil {
		t.Fatal(err)
	}
	for what, damaged := range map[string][]byte{
		"a flipped byte": bytes.Replace(content, []byte("000"), []byte("010"), 1),
		"cut":            content[:300],
	} {
		if err := os.WriteFile(files[1], damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if faults, _, err := Logs([]Replica{r}); err != nil || Count(faults, Damaged) == 0 {
			t.Errorf("%s: faults %v, %v", what, faults, err)
		}
	}
}
