package offline

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/fsm"
)

const oldCluster = "0123456789abcdef0123456789abcdef"

// directoryOf makes the data directory of n1, alone in its cluster, without jobs.
func directoryOf(t *testing.T, kind logstore.Kind) string {
	t.Helper()
	machine := fsm.NewMachine()
	return directoryWith(t, kind, machine, datadir.NewIdentity("n1", oldCluster))
}

// directoryWith makes a data directory with the state of a machine and an identity.
func directoryWith(t *testing.T, kind logstore.Kind, machine *fsm.Machine, id datadir.Identity) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "n1")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	index, _ := machine.Recover(fsm.Recovery{ClusterID: oldCluster, Server: "n1", Instance: id.Instance})
	err := errors.Join(raftnode.Found(raftnode.Founding{
		Dir: path, Kind: kind, Server: raftnode.Server{ID: "n1", Address: "127.0.0.1:1", Voter: true},
		Index: index, Term: 4, Snapshot: machine.Snapshot(),
	}), datadir.Create(path, id))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Nothing is damaged: a newer build reads it.
func TestADirectoryAboveTheLevelOfTheBuildIsRefused(t *testing.T) {
	t.Parallel()
	raised := func() *fsm.Machine {
		m := fsm.NewMachine()
		m.SupportLevel(fsm.MaxLevel + 1)
		m.Apply(1, fsm.Encode(nil, fsm.Entry{Ops: []fsm.Op{&fsm.SetLevel{Level: fsm.MaxLevel + 1}}}))
		return m
	}
	id := datadir.NewIdentity("n1", oldCluster)
	byName := id
	byName.Level, byName.LevelVersion = uint32(fsm.MaxLevel+1), "v0.2.0"
	for version, path := range map[string]string{
		"v0.2.0": directoryWith(t, logstore.Bolt, raised(), byName),
		"":       directoryWith(t, logstore.Bolt, raised(), id), // only its snapshot has the level
	} {
		_, err := Inspect(path)
		level, above := errors.AsType[*fsm.LevelError](err)
		if !above || level.Level != fsm.MaxLevel+1 || level.Version != version || IsDamage(err) {
			t.Errorf("version %q: got %v, want a LevelError", version, err)
		}
	}
}

// wantNoWait checks that a replica which starts in a directory waits for no other one, as
// after an orderly stop.
func wantNoWait(t *testing.T, path string, kind logstore.Kind) {
	t.Helper()
	found, err := raftnode.Inspect(path, kind)
	if err != nil {
		t.Fatal(err)
	}
	if orderly, err := datadir.TakeStopped(path, found.Last); err != nil || !orderly {
		t.Errorf("got orderly %v, %v", orderly, err)
	}
}

func TestARecoveredDirectoryIsThatOfANewCluster(t *testing.T) {
	t.Parallel()
	for _, kind := range []logstore.Kind{logstore.Bolt, logstore.WAL} {
		path := directoryOf(t, kind)
		before, err := Inspect(path)
		if err != nil || before.ClusterID != oldCluster || before.Term != 4 || before.LogStore != string(kind) {
			t.Fatalf("%+v, %v", before, err)
		}
		plan, err := PlanRecovery(t.Context(), RecoverConfig{DataDir: path, Address: "127.0.0.1:2", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Inspect(path); err == nil || !strings.Contains(err.Error(), "stop the replica first") {
			t.Errorf("a directory in use was inspected: %v", err)
		}
		if err := errors.Join(plan.Recover(time.Now()), plan.Close()); err != nil {
			t.Fatal(err)
		}
		after, err := Inspect(path)
		if err != nil {
			t.Fatal(err)
		}
		if after.ClusterID != plan.NewCluster || after.ClusterID == oldCluster || after.Instance == before.Instance || after.Epoch != before.Epoch+1 ||
			after.LastIndex != before.LastIndex+1<<20 || after.Term <= before.Term || len(after.Members) != 1 || after.Members[0].Address != "127.0.0.1:2" {
			t.Errorf("before %+v, after %+v", before, after)
		}
		wantNoWait(t, path, kind)
		if old, err := Inspect(plan.KeptAs); err != nil || old.ClusterID != oldCluster {
			t.Errorf("the old directory: %+v, %v", old, err)
		}
	}
}

// A crash between the two renames leaves the new directory in place and the old one
// beside it; one before them leaves the old one. Neither is taken for the other.
func TestAnInterruptedRecoveryLeavesOneDirectoryInPlace(t *testing.T) {
	t.Parallel()
	path := directoryOf(t, logstore.Bolt)
	unfinished := path + recoveredMark + "20260101T000000.000Z"
	if err := os.Mkdir(unfinished, 0o700); err != nil {
		t.Fatal(err)
	}
	plan, err := PlanRecovery(t.Context(), RecoverConfig{DataDir: path})
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Leftover) != 1 || plan.Leftover[0] != unfinished {
		t.Errorf("left over: %q", plan.Leftover)
	}
	if err := plan.Close(); err != nil {
		t.Fatal(err)
	}
	if r, err := Inspect(path); err != nil || r.ClusterID != oldCluster {
		t.Errorf("%+v, %v", r, err)
	}
	if err := exchange(unfinished, path); err != nil {
		t.Fatal(err)
	}
	if r, err := Inspect(unfinished); err != nil || r.ClusterID != oldCluster {
		t.Errorf("after the exchange: %+v, %v", r, err)
	}
}

func TestOnlyADirectoryThatCanBeRecoveredIsAccepted(t *testing.T) {
	t.Parallel()
	quarantined := directoryOf(t, logstore.Bolt) + ".damaged-20260101T000000.000Z"
	for want, cfg := range map[string]RecoverConfig{
		"is quarantined":           {DataDir: quarantined},
		"no such file":             {DataDir: t.TempDir() + "/none"},
		"not the data directory":   {DataDir: t.TempDir()},
		"whose directory this is":  {DataDir: directoryOf(t, logstore.Bolt), Lost: []string{"n1"}},
		"but the members are n1":   {DataDir: directoryOf(t, logstore.Bolt), Lost: []string{"n2"}},
		"not the output of dtaskd": {DataDir: directoryOf(t, logstore.Bolt), Than: [][]byte{[]byte("{}")}},
		"belongs to cluster other": {DataDir: directoryOf(t, logstore.Bolt), Than: [][]byte{[]byte(`{"server_id": "n2", "cluster_id": "other"}`)}},
		"is further ahead":         {DataDir: directoryOf(t, logstore.Bolt), Than: [][]byte{[]byte(`{"server_id": "n2", "cluster_id": "` + oldCluster + `", "last_term": 5}`)}},
	} {
		if plan, err := PlanRecovery(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %+v, %v, want %q", plan, err, want)
		}
	}
}

func TestADiscardedDirectoryIsKeptAndMayRejoin(t *testing.T) {
	t.Parallel()
	path := directoryOf(t, logstore.Bolt)
	if err := datadir.WriteConflict(path, datadir.Conflict{Committed: 2 << 20, Truncated: 7, Leader: "n2"}); err != nil {
		t.Fatal(err)
	}
	if d, err := Discard(path, false, time.Now()); err != nil || d.Conflict == nil || d.KeptAs != "" {
		t.Errorf("%+v, %v", d, err)
	}
	if r, err := Inspect(path); err != nil || r.Conflict == nil || r.Committed != 2<<20 {
		t.Errorf("%+v, %v", r, err)
	}
	d, err := Discard(path, true, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if r, err := Inspect(d.KeptAs); err != nil || r.ClusterID != oldCluster || r.Conflict == nil {
		t.Errorf("kept: %+v, %v", r, err)
	}
	if may, err := datadir.MayRejoin(path); !may || err != nil {
		t.Errorf("may rejoin: %t, %v", may, err)
	}
	if c, err := datadir.ReadConflict(path); c != nil || err != nil {
		t.Errorf("the conflict is still there: %v, %v", c, err)
	}
	if _, err := Discard(d.KeptAs, true, time.Now()); err == nil {
		t.Error("a quarantined directory was discarded")
	}
}

func TestADamagedDirectoryIsReportedAsFarAsItIsReadable(t *testing.T) {
	t.Parallel()
	path := directoryOf(t, logstore.Bolt)
	snapshots, err := filepath.Glob(filepath.Join(path, "snapshots", "*", "state.bin"))
	if err != nil || len(snapshots) != 1 {
		t.Fatal(snapshots, err)
	}
	state, err := os.ReadFile(snapshots[0])
	if err != nil {
		t.Fatal(err)
	}
	state[len(state)/2] ^= 1
	if err := os.WriteFile(snapshots[0], state, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Inspect(path)
	if r == nil || r.ServerID != "n1" || len(r.Damage) == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if err := os.WriteFile(filepath.Join(path, logstore.FileName), []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err = Inspect(path)
	if !IsDamage(err) || r == nil || r.ServerID != "n1" || len(r.Damage) == 0 {
		t.Errorf("%+v, %v", r, err)
	}
}
