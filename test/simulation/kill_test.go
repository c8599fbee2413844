package simulation_test

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/raftnode"
)

// calmLife is a life at the product's pace without faults.
func calmLife() life {
	return life{pace: 1, length: time.Hour, every: time.Hour, store: storeKind}
}

func TestAKillLosesWhatOnlyTheOthersHaveStored(t *testing.T) {
	t.Parallel()
	for _, kept := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 1, calmLife())
			l := c.awaitLeader()
			stalled, end := l.disk.stall(entryWrites)
			defer end()
			acked := make(chan error, 1) // one submission
			c.running.Go(func() {
				_, err := c.client.Submit(t.Context(), c.ledger.job(1), client.SubmitOptions{Key: "key"})
				acked <- err
			})
			if !stalled.await(time.Second) {
				t.Error("the leader writes nothing")
			}
			<-time.After(200 * time.Millisecond)
			if len(acked) > 0 {
				t.Error("the job was acknowledged before the leader stored it")
			}
			began := time.Now()
			c.killKeeping(func() bool { return kept }, true, l)
			if took := time.Since(began); took != 0 {
				t.Errorf("the kill took %v", took)
			}
			stored, sent := c.lastStored(l.process.image), uint64(0)
			for _, r := range c.replicas {
				if r != l {
					sent = max(sent, c.lastStored(r.process.dir))
				}
			}
			if kept != (stored >= sent) {
				t.Errorf("kept=%t: the killed leader has entries up to %d, the others up to %d", kept, stored, sent)
			}
			end()
			l.start()
			if err := <-acked; err != nil {
				t.Errorf("submitting: %v", err)
			}
			c.compare()
			c.stopAll()
		})
	}
}

func TestAWriteThatAKillInterruptsIsKeptOrLostAndNobodyLearnsOfIt(t *testing.T) {
	t.Parallel()
	for _, kept := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			g, over, written := newGate(), make(chan struct{}), 0
			write := func() error { written++; return errDisk } // which nobody learns either
			result := make(chan error, 3)                       // one per write
			pass := func(hang <-chan struct{}) {
				go func() { result <- g.pass(hang, write) }()
				synctest.Wait()
			}
			pass(over)
			g.kill(func() bool { return kept })
			pass(nil)  // begun after the kill
			pass(over) // as above
			close(over)
			synctest.Wait()
			if want := map[bool]int{true: 1}[kept]; written != want || len(result) > 0 {
				t.Errorf("kept=%t: %d writes, %d returned", kept, written, len(result))
			}
			g.end()
			for range cap(result) {
				if err := <-result; !errors.Is(err, errGone) {
					t.Errorf("a write returned %v", err)
				}
			}
		})
	}
}

// awaitLeader returns the leader when there is one.
func (c *cluster) awaitLeader() *replica {
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); <-time.After(100 * time.Millisecond) {
		if l := c.leader(); l != nil {
			return l
		}
	}
	c.t.Fatal("no replica leads")
	return nil
}

// lastStored returns the last index in the log of a data directory, which may be in
// use. All goroutines of the bubble but the caller's wait.
func (c *cluster) lastStored(dir string) uint64 {
	synctest.Wait()
	copied := filepath.Join(c.t.TempDir(), "copy")
	if err := copyTree(dir, copied); err != nil {
		c.t.Fatal(err)
	}
	found, err := raftnode.Inspect(copied, logstore.Kind(c.store))
	if err != nil {
		c.t.Fatal(err)
	}
	return found.Last
}
