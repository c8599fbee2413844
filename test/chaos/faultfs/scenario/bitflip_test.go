package scenario

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dtask/dtask/coordinator/membership/datadir"
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
		contents, err := os.ReadFile(filepath.Join(r.disk(f.victim).Dir, f.path))
		clustertest.Must(t, err)
		whole = !f.isCopied(contents)
		_, err = r.disk(f.victim).Flip(f.path, f.bit, 0)
		clustertest.Must(t, err)
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
