package fsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Equal states have equal snapshots: if those of two replicas differ, one is
// damaged, and a test may compare files.
func TestEqualStatesHaveEqualSnapshots(t *testing.T) {
	t.Parallel()
	write := func() []byte {
		s := New()
		for i := range 20 * KeyShards {
			for _, op := range chain(1).submit(JobID(i+1), fmt.Sprint("key ", i), 1) {
				s.Apply(Entry{Ops: []Op{op}}, nil)
			}
		}
		var b bytes.Buffer
		if err := s.WriteSnapshot(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	first := write()
	if !bytes.Equal(first, write()) {
		t.Error("two states of one log have different snapshots")
	}
	s, err := ReadSnapshot(bytes.NewReader(first))
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := s.WriteSnapshot(&again); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, again.Bytes()) {
		t.Error("the snapshot of a restored state differs from the original")
	}
}

// Each frame has its own checksum, which does not cover its neighbors.
func TestASnapshotWithoutOneOfItsFramesIsRefused(t *testing.T) {
	t.Parallel()
	whole, err := os.ReadFile(filepath.Join("testdata", "snapshot_v3.bin"))
	if err != nil {
		t.Fatal(err)
	}
	frames := 0
	for at := len(snapshotMagic); at < len(whole); frames++ {
		end := at + 5 + int(binary.LittleEndian.Uint32(whole[at+1:])) + 4
		without := append(bytes.Clone(whole[:at]), whole[end:]...)
		if _, err := ReadSnapshot(bytes.NewReader(without)); err == nil {
			t.Errorf("without frame %d of kind %d: got no error", frames, whole[at])
		}
		at = end
	}
	if frames < 5 {
		t.Errorf("got only %d frames in the example", frames)
	}
}
