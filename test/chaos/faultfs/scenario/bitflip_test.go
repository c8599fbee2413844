package scenario

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/test/chaos/faultfs"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/record"
)

// fate is what happened to a replica with a flipped bit.
type fate string

const (
	refused  fate = "refused to start"
	stopped  fate = "stopped later"
	harmless fate = "not harmed"
)

// TestBitFlips repeatedly flips one random bit at one replica while jobs run: in its
// store or in a snapshot, while it is down or running. The replica stops or is not
// harmed, the cluster loses nothing, and all replicas are equal at the end. Each bit
// is flipped back, so that at most one replica is damaged at a time. Every second cluster
// has TLS and identities.
func TestBitFlips(t *testing.T) {
	seed := seedOf(t)
	begun := time.Now()
	total := record.Run{Suite: "bitflip", Seed: seed, LogStore: cmp.Or(os.Getenv(cluster.StoreVariable), "bolt"), Faults: map[string]int{}}
	record.AtEnd(t, &total)
	fates := make(map[fate]int)
	wanted := int(number(t, "DTASK_BITFLIPS", 20)) //nolint:gosec // a small number
	each, secured := roundsPerCluster(wanted), 0
	for life := uint64(0); total.BitFlips < wanted && !t.Failed(); life++ {
		r := startLife(t, seed+life, "--snapshot-bytes", "16384")
		r.begin(t, seed+life)
		r.awaitBegun(t, 30)
		until := min(wanted, total.BitFlips+each)
		for whole := true; whole && total.BitFlips < until && !t.Failed(); {
			victim := r.follower(t)
			if r.random.IntN(3) == 0 {
				victim = clustertest.Leader(t, r.c)
			}
			f := r.flip(t, victim, r.random.IntN(4) == 0)
			total.BitFlips++
			if r.c.Secured() {
				secured++
			}
			total.Faults[f.kind]++
			var what fate
			what, whole = r.outlive(t, f)
			fates[what]++
		}
		j := r.load.judge(t)
		total.Tasks, total.Lost, total.Duplicated, total.Diverged = total.Tasks+j.tasks, total.Lost+j.lost, total.Duplicated+j.duplicated, total.Diverged+j.diverged
		clustertest.Must(t, r.c.Close())
	}
	total.Seconds = time.Since(begun).Seconds()
	t.Logf("%d bits flipped (%v; %d with TLS): %v; %d tasks, %d lost, %d accepted twice, %d diverged",
		total.BitFlips, total.Faults, secured, fates, total.Tasks, total.Lost, total.Duplicated, total.Diverged)
}

// flipped is a flipped bit.
type flipped struct {
	kind    string
	victim  *cluster.Coordinator
	path    string // on the disk
	bit     int64
	running bool   // the replica was running
	around  []byte // the bytes around it, flipped
}

// vicinity is the number of bytes on both sides of a bit that are compared to find
// out whether the bit is still there.
const vicinity = 32

// flip flips a bit of a replica and leaves the replica as it was: running or killed.
func (r *rig) flip(t *testing.T, victim *cluster.Coordinator, running bool) *flipped {
	t.Helper()
	if !running {
		clustertest.Must(t, victim.Kill())
		clustertest.Must(t, r.disk(victim).Save("whole"))
	}
	f := &flipped{kind: "F45", victim: victim, path: dbPath, bit: -1, running: running}
	if r.random.IntN(3) == 0 {
		if name := r.snapshotFile(t, victim); name != "" {
			f.kind, f.path = "F46", name
		}
	}
	log, onDisk, err := logFile(r.disk(victim), victim)
	clustertest.Must(t, err)
	switch {
	case f.kind == "F45" && onDisk != dbPath && r.random.IntN(4) > 0:
		f.path = onDisk
		f.bit, err = faultfs.UsedBit(log, r.random)
		clustertest.Must(t, err)
	case f.kind == "F45" && !running && r.random.IntN(4) > 0:
		f.bit = r.usedBit(t, victim)
	}
	f.bit, err = r.disk(victim).Flip(f.path, f.bit, r.random.Uint64())
	if errors.Is(err, fs.ErrNotExist) || err != nil && f.kind == "F46" { // the snapshot was removed meanwhile
		f.kind, f.path = "F45", dbPath
		f.bit, err = r.disk(victim).Flip(f.path, -1, r.random.Uint64())
	}
	clustertest.Must(t, err)
	f.around, err = r.bytesAround(f)
	clustertest.Must(t, err)
	return f
}

// snapshotFile returns a file of a snapshot, as a path on the disk; "" if missing.
func (r *rig) snapshotFile(t *testing.T, n *cluster.Coordinator) string {
	t.Helper()
	all, err := r.disk(n).Files()
	clustertest.Must(t, err)
	all = slices.DeleteFunc(all, func(name string) bool {
		base := filepath.Base(name)
		return base != "state.bin" && base != "meta.json"
	})
	if len(all) == 0 {
		return ""
	}
	return all[r.random.IntN(len(all))]
}

// usedBit returns a bit in a used page of the store. Most pages are free, and their
// contents have no effect.
func (r *rig) usedBit(t *testing.T, n *cluster.Coordinator) int64 {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(n.DataDir, store), 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second, PreLoadFreelist: true})
	clustertest.Must(t, err)
	var used []int64
	clustertest.Must(t, db.View(func(tx *bbolt.Tx) error {
		for id := 0; ; {
			page, err := tx.Page(id)
			if err != nil || page == nil {
				return err
			}
			for range 1 + page.OverflowCount {
				if page.Type != "free" {
					used = append(used, int64(id))
				}
				id++
			}
		}
	}))
	size := int64(db.Info().PageSize)
	clustertest.Must(t, db.Close())
	page := used[r.random.IntN(len(used))]
	return (page*size)*8 + r.random.Int64N(size*8)
}

// bytesAround returns the current bytes around a flipped bit; none if the file was
// removed.
func (r *rig) bytesAround(f *flipped) ([]byte, error) {
	file, err := os.Open(filepath.Join(r.disk(f.victim).Dir, f.path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	around := make([]byte, 2*vicinity)
	n, err := file.ReadAt(around, max(0, f.bit/8-vicinity))
	if n > 0 {
		err = nil // near the end of the file
	}
	return around[:n], errors.Join(err, file.Close())
}

// isIn reports whether the flipped bit is in the current bytes around it. It isn't in those of a
// file that was removed, also if that was before its bytes were first read.
func (f *flipped) isIn(now []byte) bool { return now != nil && bytes.Equal(now, f.around) }

func TestABitIsNotInAFileThatWasRemoved(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		around, now []byte
		want        bool
	}{
		"in its place":                  {[]byte("abc"), []byte("abc"), true},
		"overwritten":                   {[]byte("abc"), []byte("abd"), false},
		"removed":                       {[]byte("abc"), nil, false},
		"removed before the first read": {nil, nil, false},
	} {
		if got := (&flipped{around: c.around}).isIn(c.now); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

// outlive observes a replica with a flipped bit, flips the bit back and restarts the
// replica. whole is false if the damage may have been copied to an unknown place.
func (r *rig) outlive(t *testing.T, f *flipped) (what fate, whole bool) {
	t.Helper()
	if f.running {
		r.awaitBegun(t, 8)
		if !f.victim.Running() {
			what = stopped
		}
		clustertest.Must(t, f.victim.Kill())
	}
	clustertest.Must(t, f.victim.Start(t.Context()))
	if r.halts(t, f.victim) {
		r.awaitBegun(t, 2) // the others continue
		t.Logf("bit %d of %s at %s: %s", f.bit, f.path, f.victim.Name, lastLine(t, f.victim))
		if !f.running {
			clustertest.Must(t, r.disk(f.victim).Load("whole"))
			r.back(t, f.victim)
			return refused, true
		}
		return refused, r.putBack(t, f)
	}
	r.awaitBegun(t, 4)
	if !f.victim.Running() {
		what = stopped
		r.ends(t, f.victim)
		t.Logf("bit %d of %s at %s: %s", f.bit, f.path, f.victim.Name, lastLine(t, f.victim))
	} else if what == "" {
		what = harmless
	}
	clustertest.Must(t, f.victim.Kill())
	return what, r.putBack(t, f)
}

// putBack flips a bit back if it is still in its place, and starts its replica. If
// it is not and the replica is still damaged, the replica stays down.
func (r *rig) putBack(t *testing.T, f *flipped) (whole bool) {
	t.Helper()
	aside, err := datadir.Quarantined(f.victim.DataDir)
	clustertest.Must(t, err)
	if len(aside) > 0 { // an operator finds the bit in the quarantined file
		clustertest.Must(t, errors.Join(os.RemoveAll(f.victim.DataDir), os.Rename(aside[0], f.victim.DataDir)))
	}
	now, err := r.bytesAround(f)
	clustertest.Must(t, err)
	whole = now == nil // the file was removed, and the bit with it
	if f.isIn(now) {
		_, err := r.disk(f.victim).Flip(f.path, f.bit, 0)
		clustertest.Must(t, err)
		whole = true
	}
	clustertest.Must(t, f.victim.Start(t.Context()))
	if r.halts(t, f.victim) {
		if whole {
			t.Errorf("%s does not start although bit %d of %s was restored", f.victim.Name, f.bit, f.path)
		}
		r.load.without = f.victim
		return false
	}
	return whole
}
