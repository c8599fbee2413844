package raftnode

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/internal/durable"
	"github.com/dtask/dtask/test/chaos/faultfs"
	"github.com/dtask/dtask/test/chaos/faultfs/disk"
)

// promises is what a replica had acknowledged at a point of its history.
type promises struct{ term, index, value uint64 }

// mark adds promises to the record of a disk.
func (p promises) mark(t *testing.T, d *faultfs.Disk) {
	t.Helper()
	if err := d.Mark(fmt.Sprintf("%d %d %d", p.term, p.index, p.value)); err != nil {
		t.Fatal(err)
	}
}

// promised returns the last promises of a record.
func promised(t *testing.T, ops []disk.Op) (p promises) {
	t.Helper()
	for _, op := range ops {
		if op.Kind != disk.Mark {
			continue
		}
		if _, err := fmt.Sscan(op.Name, &p.term, &p.index, &p.value); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// TestAcknowledgedStateSurvivesAPowerCutAtAnyPoint records all disk operations of one
// replica in three runs, with snapshots and compactions, and cuts the power at many
// points of that history: unsynced data survives, is torn or is lost. The remaining
// directory must open, and must have every acknowledged entry and at least the last
// term.
func TestAcknowledgedStateSurvivesAPowerCutAtAnyPoint(t *testing.T) {
	t.Parallel()
	for _, store := range []logstore.Kind{logstore.Bolt, logstore.WAL} {
		t.Run(string(store), func(t *testing.T) {
			t.Parallel()
			survivesPowerCuts(t, store)
		})
	}
}

func survivesPowerCuts(t *testing.T, store logstore.Kind) {
	t.Helper()
	ops, address := recordedLife(t, store)
	random := rand.New(rand.NewPCG(1, 1))
	promising := 0
	for i := range crashPoints {
		at := len(ops) * (i + 1) / crashPoints
		want := promised(t, ops[:at])
		d := disk.Replay(ops[:at])
		d.Cut(random)
		dir := filepath.Join(t.TempDir(), "image")
		if err := d.Export(dir); err != nil {
			t.Fatal(err)
		}
		if want.index > 0 {
			promising++
		}
		data := filepath.Join(dir, faultfs.DataDirectory)
		if err := keeps(data, store, want); err != nil {
			t.Errorf("power cut after %d of %d operations: %v", at, len(ops), err)
			continue
		}
		if i%25 == 24 {
			continues(t, data, address, store, want)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d crash points in a history of %d operations, %d of them with acknowledged state", crashPoints, len(ops), promising)
	if promising < crashPoints/2 {
		t.Errorf("only %d points had acknowledged state", promising)
	}
}

// A joining replica may vote before it has stored any entry.
func TestAVoteOfAReplicaWithoutALogSurvives(t *testing.T) {
	t.Parallel()
	d := mountedDisk(t)
	if err := d.Record(); err != nil {
		t.Fatal(err)
	}
	n := &testNode{id: "n1", dir: filepath.Join(d.Dir, faultfs.DataDirectory), net: newNetwork(), address: "127.0.0.1:0"}
	if err := durable.MakeDir(n.dir); err != nil {
		t.Fatal(err)
	}
	n.listen(t)
	n.start(t, nil)
	if err := errors.Join(n.store.SetUint64([]byte("LastVoteTerm"), 7), n.store.Set([]byte("LastVoteCand"), []byte("n2"))); err != nil {
		t.Fatal(err)
	}
	ops := history(t, d)
	n.stop(t)
	for seed := range uint64(20) {
		image := disk.Replay(ops)
		image.Cut(rand.New(rand.NewPCG(seed, 1)))
		dir := t.TempDir()
		if err := image.Export(dir); err != nil {
			t.Fatal(err)
		}
		if f, err := Inspect(filepath.Join(dir, faultfs.DataDirectory), n.logStore()); err != nil || !f.HasState {
			t.Fatalf("seed %d: the vote is lost: %+v, %v", seed, f, err)
		}
	}
}

// recordedLife returns the record of a replica's disk, and the replica's address.
func recordedLife(t *testing.T, store logstore.Kind) (ops []disk.Op, address string) {
	t.Helper()
	d := mountedDisk(t)
	if err := d.Record(); err != nil {
		t.Fatal(err)
	}
	n := &testNode{id: "n1", dir: filepath.Join(d.Dir, faultfs.DataDirectory), net: newNetwork(), address: "127.0.0.1:0", kind: store}
	if err := durable.MakeDir(n.dir); err != nil {
		t.Fatal(err)
	}
	n.tune = func(cfg *Config) {
		cfg.SnapshotBytes, cfg.SnapshotInterval, cfg.TrailingLogs = 1<<40, 1, 20
	}
	defer n.stop(t)
	n.listen(t)
	p := promises{}
	for life := range 3 {
		if life == 0 {
			n.start(t, []Server{{ID: n.id, Address: n.address, Voter: true}})
			n.stands(t)
		} else {
			n.restart(t)
		}
		cluster{n}.leader(t)
		p.term = n.raft.CurrentTerm()
		p.mark(t, d)
		for range 4 {
			for range 5 {
				n.propose(t, p.value+1, 3)
				p.value += 3
				p.index = n.AppliedIndex()
				p.mark(t, d)
			}
			if err := n.Snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		n.stop(t)
	}
	return history(t, d), n.address
}

// history returns the recorded operations.
func history(t *testing.T, d *faultfs.Disk) []disk.Op {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history")
	if err := d.History(path); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	ops, err := disk.ReadOps(file)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	return ops
}

// mountedDisk returns a disk of package faultfs that ends with the test.
func mountedDisk(t *testing.T) *faultfs.Disk {
	t.Helper()
	if err := faultfs.Available(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	program, err := faultfs.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	d, err := faultfs.New(t.Context(), program, filepath.Join(dir, "disk"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// keeps reads a data directory after a power cut, as a starting replica does.
func keeps(dir string, store logstore.Kind, want promises) error {
	if want == (promises{}) {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		_, err := Inspect(dir, store)
		return err
	}
	if _, err := Inspect(dir, store); err != nil {
		return err
	}
	snapshot, err := newestSnapshot(dir)
	if err != nil {
		return err
	}
	contents, err := logstore.Inspect(dir)
	if err != nil {
		return err
	}
	failures := &fatals{}
	s, err := logstore.Open(logstore.Config{
		Dir: dir, Kind: store, Contents: contents, HadEntries: true, HangTimeout: testTimeout, Fatal: failures.record,
		Logger: quiet(), RaftLogger: newHCLog(quiet()),
	})
	if err != nil {
		return fmt.Errorf("opening the store: %w", err)
	}
	err = logKeeps(s, snapshot, want)
	return errors.Join(append(failures.all(), err, s.Close())...)
}

func logKeeps(s *logstore.Store, snapshot uint64, want promises) error {
	term, err := s.GetUint64([]byte("CurrentTerm"))
	if err != nil {
		return fmt.Errorf("reading the term: %w", err)
	}
	if term < want.term {
		return fmt.Errorf("the term is %d, it was %d", term, want.term)
	}
	first, err := s.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.LastIndex()
	if err != nil {
		return err
	}
	if max(last, snapshot) < want.index {
		return fmt.Errorf("log and snapshot end at %d and %d, but %d was acknowledged", last, snapshot, want.index)
	}
	if snapshot+1 < first {
		return fmt.Errorf("the snapshot ends at %d and the log starts at %d", snapshot, first)
	}
	for i := first; i <= last; i++ {
		var log raft.Log
		if err := s.GetLog(i, &log); err != nil {
			return fmt.Errorf("reading entry %d: %w", i, err)
		}
	}
	return nil
}

// newestSnapshot returns the last index of the newest readable snapshot.
func newestSnapshot(dir string) (uint64, error) {
	names, err := snapshotNames(dir)
	if err != nil || len(names) == 0 {
		return 0, err
	}
	files, err := raft.NewFileSnapshotStore(dir, snapshotRetain, io.Discard)
	if err != nil {
		return 0, fmt.Errorf("opening the snapshots: %w", err)
	}
	list, err := files.List()
	if err != nil {
		return 0, fmt.Errorf("listing the snapshots: %w", err)
	}
	for _, meta := range list {
		_, content, err := files.Open(meta.ID)
		if err != nil {
			continue
		}
		_, err = io.Copy(io.Discard, content)
		if err := errors.Join(err, content.Close()); err == nil {
			return meta.Index, nil
		}
	}
	return 0, fmt.Errorf("none of the snapshots %s can be read", strings.Join(names, ", "))
}

// continues starts the replica on the remaining data: it has every acknowledged value
// and accepts more.
func continues(t *testing.T, dir, address string, store logstore.Kind, want promises) {
	t.Helper()
	if want.value == 0 {
		return
	}
	n := &testNode{id: "n1", dir: dir, net: newNetwork(), address: address, kind: store}
	defer n.stop(t)
	n.restart(t)
	n.stands(t)
	cluster{n}.leader(t)
	eventually(t, "all is applied", func() bool { return uint64(len(n.fsm.all())) >= want.value })
	have := uint64(len(n.fsm.all()))
	if have > want.value+4 { // values in flight may be there, too
		t.Errorf("there are %d values, but %d were acknowledged", have, want.value)
	}
	n.propose(t, have+1, 3)
	n.holds(t, have+3)
}
