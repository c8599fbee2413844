package check

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// entry is a sealed entry that is not a command, so that nothing is replayed.
func entry(index, term uint64, data string) *raft.Log {
	e := &raft.Log{Index: index, Term: term, Type: raft.LogNoop, Data: []byte(data)}
	head := binary.BigEndian.AppendUint64(nil, index)
	head = binary.BigEndian.AppendUint64(head, term)
	sum := crc32.Checksum(append(append(head, byte(e.Type)), e.Data...), crc32.MakeTable(crc32.Castagnoli))
	e.Extensions = binary.BigEndian.AppendUint32([]byte{1}, sum)
	return e
}

func replica(t *testing.T, name string, entries ...*raft.Log) Replica {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	store, err := raftboltdb.NewBoltStore(filepath.Join(dir, storeFile))
	if err != nil {
		t.Fatal(err)
	}
	var chunks []*raft.Log
	for _, e := range entries {
		chunks = append(chunks, inChunks(e)...)
	}
	kind := append(make([]byte, checksumSize), kindBolt...)
	if err := errors.Join(store.Set([]byte(kindKey), kind), store.StoreLogs(chunks), store.Close()); err != nil {
		t.Fatal(err)
	}
	return Replica{Name: name, Dir: dir}
}

// inChunks splits an entry into chunks.
func inChunks(e *raft.Log) (chunks []*raft.Log) {
	for number, rest := uint64(0), e.Data; ; number++ {
		chunk := *e
		chunk.Index, chunk.Data = e.Index<<chunkBits|number, rest[:min(len(rest), chunkSize)]
		chunks = append(chunks, &chunk)
		rest = rest[len(chunk.Data):]
		if len(chunk.Data) < chunkSize {
			return chunks
		}
	}
}

func TestEachPlantedFaultOfALogIsFound(t *testing.T) {
	t.Parallel()
	damaged := entry(2, 1, "b")
	damaged.Data = []byte("x")
	good := []*raft.Log{entry(1, 1, "a"), entry(2, 1, "b"), entry(3, 2, "c")}
	for name, c := range map[string]struct {
		want Kind // "": no fault
		log  []*raft.Log
	}{
		"the same log":                              {"", good},
		"a log that ends earlier":                   {"", good[:2]},
		"a tail that was never committed":           {"", []*raft.Log{good[0], good[1], entry(3, 1, "other"), entry(4, 1, "other")}},
		"an entry that does not match its checksum": {Damaged, []*raft.Log{good[0], damaged, good[2]}},
		"a hole": {Damaged, []*raft.Log{good[0], good[2]}},
		"another entry below one that is the same": {Diverged, []*raft.Log{good[0], entry(2, 1, "x"), good[2]}},
		"another term below an entry of one term":  {Diverged, []*raft.Log{entry(1, 0, "a"), good[1], good[2]}},
		"a log without common entries":             {Diverged, []*raft.Log{entry(1, 7, "a"), entry(2, 7, "b"), entry(3, 7, "c")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faults, depth, err := Logs([]Replica{replica(t, "n1", good...), replica(t, "n2", c.log...)})
			if err != nil {
				t.Fatal(err)
			}
			if depth.Entries < len(good)+len(c.log)-1 {
				t.Errorf("got depth %s, want more", depth)
			}
			if c.want == "" && len(faults) > 0 || c.want != "" && Count(faults, c.want) == 0 {
				t.Errorf("want %q, got %v", c.want, faults)
			}
		})
	}
}

// Large entries are stored in chunks; the checker reads both forms.
func TestALargeEntryIsReadFromItsChunks(t *testing.T) {
	t.Parallel()
	large := entry(2, 1, strings.Repeat("0123456789abcdef", 3*chunkSize/16))
	if n := len(inChunks(large)); n != 4 {
		t.Fatalf("got %d chunks, want 4", n)
	}
	all := []*raft.Log{entry(1, 1, "a"), large, entry(3, 1, "c")}
	faults, depth, err := Logs([]Replica{replica(t, "n1", all...), replica(t, "n2", all...)})
	if err != nil {
		t.Fatal(err)
	}
	if len(faults) > 0 || depth.Entries != 6 || depth.Compared != 3 {
		t.Errorf("got faults %v, depth %s; want none, and 3 pairs compared", faults, depth)
	}
}
