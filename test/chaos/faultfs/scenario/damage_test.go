package scenario

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/chaos/faultfs"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// firstData is the offset of the first data page of a store: before it are two root
// pages, one of which may be lost.
const firstData = 8192

// dbPath is the path of the store on a disk.
const dbPath = faultfs.DataDirectory + "/" + store

// TestADamagedReplicaStopsAndNamesTheDamage (F44, F45, F46, F47) damages the data
// directory of one replica while it is down. The replica must not serve from it, and
// the others continue. With its directory restored, the replica rejoins.
func TestADamagedReplicaStopsAndNamesTheDamage(t *testing.T) {
	r := start(t, seedOf(t), "--snapshot-bytes", "4096")
	r.begin(t, r.seed)
	for _, c := range r.c.Coordinators() { // so that there are snapshots to damage
		clustertest.Must(t, cluster.Until(t.Context(), c.Name+" has a snapshot", guard, func(context.Context) error {
			if len(snapshotFiles(c, "state.bin")) == 0 {
				return errors.New("no snapshot yet")
			}
			return nil
		}))
	}
	for _, damage := range []struct {
		kind string
		do   func(d *faultfs.Disk, n *cluster.Coordinator) error
		word string // expected in its output
	}{
		{"F44", func(d *faultfs.Disk, n *cluster.Coordinator) error {
			return d.TearLog(n.DataDir, r.random)
		}, ""},
		{"F45", flipEntry, "damaged"},
		{"F46", func(d *faultfs.Disk, n *cluster.Coordinator) error {
			return flipAll(d, n, "state.bin", r.random.Uint64())
		}, "snapshots"},
		{"F46", func(_ *faultfs.Disk, n *cluster.Coordinator) error { return rewriteAll(n, "meta.json") }, ""},
		{"F47", func(d *faultfs.Disk, n *cluster.Coordinator) error {
			path, _, err := logFile(d, n)
			if err == nil {
				err = os.Truncate(path, min(firstData+4096, used(path)/2))
			}
			return err
		}, "damaged"},
	} {
		victim := r.follower(t)
		if r.random.IntN(2) == 0 {
			victim = clustertest.Leader(t, r.c)
		}
		r.awaitBegun(t, 5)
		clustertest.Must(t, victim.Kill())
		clustertest.Must(t, r.disk(victim).Save("whole"))
		clustertest.Must(t, damage.do(r.disk(victim), victim))
		clustertest.Must(t, victim.Start(t.Context()))
		halted := r.halts(t, victim)
		switch {
		case halted && damage.word != "" && !strings.Contains(lastLine(t, victim), damage.word):
			t.Errorf("%s: got output %q of %s, want it to name %q", damage.kind, lastLine(t, victim), victim.Name, damage.word)
		case !halted && damage.word != "":
			t.Errorf("%s: %s serves from a damaged data directory", damage.kind, victim.Name)
		}
		r.awaitBegun(t, 5)
		if halted {
			clustertest.Must(t, r.disk(victim).Load("whole"))
			r.back(t, victim)
		}
		t.Logf("%s at %s: halted %v: %s", damage.kind, victim.Name, halted, lastLine(t, victim))
		r.fired(damage.kind)
	}
	r.judge(t)
}

// halts reports whether a coordinator exits by itself before it has caught up.
func (r *rig) halts(t *testing.T, n *cluster.Coordinator) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = n.Wait(ctx)
		cancel()
	}()
	err := r.c.AwaitCaughtUp(ctx, n)
	cancel()
	<-ended
	if err == nil {
		return false
	}
	r.ends(t, n)
	return true
}

// lastLine returns the last output of a coordinator before its exit, as one line.
func lastLine(t *testing.T, n *cluster.Coordinator) string {
	t.Helper()
	text, err := n.Log()
	clustertest.Must(t, err)
	last, ending := "", false
	for line := range strings.Lines(text) {
		said := strings.HasPrefix(line, "dtaskd:")
		if said && !ending {
			last = ""
		}
		if said {
			last += strings.TrimSpace(line) + " "
		}
		ending = said
	}
	return last
}

// logFile returns the file to which the log of a coordinator is appended, and its
// path on the disk.
func logFile(d *faultfs.Disk, n *cluster.Coordinator) (path, onDisk string, err error) {
	if path, err = faultfs.LogFile(n.DataDir); err != nil {
		return "", "", err
	}
	onDisk, err = filepath.Rel(d.Dir, path)
	return path, onDisk, err
}

// used returns the length of a file without the zeros at its end.
func used(path string) int64 {
	content, _ := os.ReadFile(path)
	return int64(len(strings.TrimRight(string(content), "\x00")))
}

// flipEntry flips a bit in the middle of a log entry: near a job's name, which is
// stored as plain text.
func flipEntry(d *faultfs.Disk, n *cluster.Coordinator) error {
	path, onDisk, err := logFile(d, n)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	at := strings.LastIndex(string(content), "job-")
	if at < 0 {
		return errors.New("no log entry has a job")
	}
	// Flip every copy of it, also those in free pages, which are never read.
	for at := range content {
		if (at >= firstData || onDisk != dbPath) && strings.HasPrefix(string(content[at:min(len(content), at+4)]), "job-") {
			if _, err := d.Flip(onDisk, int64(at)*8+3, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// snapshotFiles returns the paths of a file in each finished snapshot. A kill can leave an
// unfinished one, whose files may be empty, and a running coordinator renames it.
func snapshotFiles(n *cluster.Coordinator, name string) []string {
	paths, _ := filepath.Glob(filepath.Join(n.DataDir, "snapshots", "*", name)) // a valid pattern
	return slices.DeleteFunc(paths, func(path string) bool {
		about, err := os.Stat(path)
		return err != nil || about.Size() == 0 || strings.HasSuffix(filepath.Dir(path), ".tmp")
	})
}

// flipAll flips a bit in a file of each snapshot.
func flipAll(d *faultfs.Disk, n *cluster.Coordinator, name string, seed uint64) (err error) {
	for _, path := range snapshotFiles(n, name) {
		within, relErr := filepath.Rel(d.Dir, path)
		_, flipErr := d.Flip(within, -1, seed)
		err = errors.Join(err, relErr, flipErr)
	}
	return err
}

// rewriteAll replaces the contents of a file of each snapshot.
func rewriteAll(n *cluster.Coordinator, name string) (err error) {
	for _, path := range snapshotFiles(n, name) {
		err = errors.Join(err, os.WriteFile(path, []byte(`{"Version": 1, "ID":`), 0o600))
	}
	return err
}

// TestALostDataDirectoryIsNotTreatedAsNew (F48): a replica whose data directory is
// lost must not start as if it had never voted.
func TestALostDataDirectoryIsNotTreatedAsNew(t *testing.T) {
	r := start(t, seedOf(t))
	r.begin(t, r.seed)
	r.awaitBegun(t, 10)
	victim := r.follower(t)
	clustertest.Must(t, victim.Kill())
	clustertest.Must(t, r.disk(victim).Save("whole"))
	clustertest.Must(t, os.RemoveAll(victim.DataDir))
	clustertest.Must(t, victim.Start(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	if code, err := victim.Wait(ctx); err != nil || code == 0 {
		t.Errorf("%s without its data directory: got exit code %d, %v; want a refusal", victim.Name, code, err)
	}
	if said := lastLine(t, victim); !strings.Contains(said, "data directory") {
		t.Errorf("%s: got output %q, want it to name the data directory", victim.Name, said)
	}
	r.awaitBegun(t, 10)
	clustertest.Must(t, r.disk(victim).Load("whole"))
	r.back(t, victim)
	r.fired("F48")
	r.judge(t)
}

// TestAnOldCopyOfADataDirectoryIsRefused (F49) replaces the data directory of a
// voter by an earlier copy, which lacks votes and entries that the voter has
// acknowledged.
func TestAnOldCopyOfADataDirectoryIsRefused(t *testing.T) {
	r := start(t, seedOf(t))
	r.begin(t, r.seed)
	r.awaitBegun(t, 10)
	victim := r.follower(t)
	clustertest.Must(t, victim.Kill())
	clustertest.Must(t, r.disk(victim).Save("old"))
	r.back(t, victim)
	r.awaitBegun(t, 40)
	clustertest.Must(t, cluster.Pause(t.Context(), time.Second))
	clustertest.Must(t, victim.Kill())
	clustertest.Must(t, r.disk(victim).Save("new"))
	clustertest.Must(t, r.disk(victim).Load("old"))
	clustertest.Must(t, victim.Start(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	code, err := victim.Wait(ctx)
	switch {
	case err != nil:
		t.Errorf("%s runs on an old copy of its data directory", victim.Name)
	case code == 0:
		t.Errorf("%s exited with 0 on an old copy of its data directory", victim.Name)
	default:
		t.Logf("%s exited with %d: %s", victim.Name, code, lastLine(t, victim))
		clustertest.Must(t, r.disk(victim).Load("new"))
		r.back(t, victim)
	}
	r.fired("F49")
	r.judge(t)
}
