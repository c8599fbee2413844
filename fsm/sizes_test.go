package fsm

import (
	"bytes"
	"testing"
)

// Every frame of a snapshot is in one kind: the sizes add up to the snapshot.
func TestTheSizesOfAllKindsAreThatOfTheSnapshot(t *testing.T) {
	t.Parallel()
	s := New()
	for e := range largeLog {
		if r := s.Apply(e, nil); r != Accepted {
			t.Fatal(r)
		}
	}
	var snapshot bytes.Buffer
	if err := s.WriteSnapshot(&snapshot); err != nil {
		t.Fatal(err)
	}
	total, byKind := uint64(len(snapshotMagic)), make(map[string]uint64)
	for _, k := range s.Sizes() {
		total += k.Bytes
		byKind[k.Kind] = k.Bytes
	}
	if total != uint64(snapshot.Len()) {
		t.Errorf("the kinds have %d bytes, the snapshot %d", total, snapshot.Len())
	}
	for kind, least := range map[string]uint64{"task_definitions": 32 * memoryTasks, "task_records": 10 * memoryTasks, "workers": 1, "cluster": 1, "jobs": 1} {
		if byKind[kind] < least {
			t.Errorf("%s: got %d bytes, want at least %d", kind, byKind[kind], least)
		}
	}
}

func TestEveryFrameOfASnapshotBelongsToOneKind(t *testing.T) {
	t.Parallel()
	seen := make(map[frameKind]int)
	for _, k := range sizeKinds {
		for _, frame := range k.frames {
			seen[frame]++
		}
	}
	for frame := frameCluster; frame <= frameTotals; frame++ {
		if seen[frame] != 1 {
			t.Errorf("frame %d is in %d kinds", frame, seen[frame])
		}
	}
}
