package scheduler_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/dtask/dtask/scheduler"
)

// A keyed is a cluster in which tasks of many keys wait, each of which may run once and does.
// Each step ends the oldest attempt, pushes a task of its key and assigns one.
type keyed struct {
	s       *scheduler.Scheduler
	classes []scheduler.ClassID
	running []scheduler.Assignment
	at      int
	pushed  int
}

func newKeyed(keys, waiting int) *keyed {
	k := &keyed{s: scheduler.New(1)}
	for id := range scheduler.WorkerID(1_000) {
		k.s.AddWorker(id+1, scheduler.Capacity{Slots: 2 * keys / 1_000})
	}
	for i := range keys {
		name := fmt.Sprintf("tenant/%d", i)
		k.classes = append(k.classes, k.s.Class(uses(name)))
		k.s.SetNamedLimit(name, 1)
	}
	for i := range waiting + keys {
		k.push(k.classes[i%keys])
	}
	for a, ok := k.s.Next(k.valid); ok; a, ok = k.s.Next(k.valid) {
		k.running = append(k.running, a)
	}
	return k
}

// newCrowdedLimit returns a cluster in which tasks of many owners wait for one limit that is full,
// or for a quota that is used up.
func newCrowdedLimit(owners int, quota bool) *keyed {
	k := &keyed{s: scheduler.New(1)}
	for id := range scheduler.WorkerID(100) {
		k.s.AddWorker(id+1, scheduler.Capacity{Slots: 10, Resources: cpus(10)})
	}
	k.s.SetQueue("q", scheduler.Queue{Max: cpus(100)})
	for i := range owners {
		d := scheduler.Demand{Owner: strconv.Itoa(i), Uses: []string{"db"}}
		if quota {
			d = scheduler.Demand{Owner: d.Owner, Queue: "q", Resources: cpus(1)}
		}
		k.classes = append(k.classes, k.s.Class(d))
	}
	k.s.SetNamedLimit("db", 100)
	for i := range 2*owners + 100 {
		k.push(k.classes[i%owners])
	}
	for a, ok := k.s.Next(k.valid); ok; a, ok = k.s.Next(k.valid) {
		k.running = append(k.running, a)
	}
	return k
}

func cpus(n int64) []scheduler.Quantity { return []scheduler.Quantity{{Name: "cpu", Amount: 1000 * n}} }

func (k *keyed) push(c scheduler.ClassID) {
	k.pushed++
	k.s.Push(task(k.pushed), c, scheduler.Normal, 0)
}

func (k *keyed) valid(scheduler.TaskRef) bool { return true }

// step reports whether a task was assigned.
func (k *keyed) step() (ok bool) {
	ended := &k.running[k.at]
	k.s.Release(ended.Worker, ended.Class, ended.Priority)
	k.push(ended.Class)
	*ended, ok = k.s.Next(k.valid)
	k.at = (k.at + 1) % len(k.running)
	return ok
}

func TestFullLimitsAllocateNothing(t *testing.T) {
	// Not parallel: AllocsPerRun counts the allocations of all goroutines.
	k := newKeyed(1_000, 10_000)
	for range 3 * len(k.running) {
		k.step()
	}
	if allocs := testing.AllocsPerRun(10_000, func() { k.step() }); allocs != 0 {
		t.Errorf("%v allocations per task, want 0", allocs)
	}
}

func TestTheEndOfAnAttemptReturnsOnlyWhatCanStartToTheOrder(t *testing.T) {
	t.Parallel()
	const owners = 1_000
	for _, quota := range []bool{false, true} {
		t.Run(map[bool]string{false: "of a limit", true: "of a quota"}[quota], func(t *testing.T) {
			t.Parallel()
			k := newCrowdedLimit(owners, quota)
			waiting := func() int {
				if quota {
					return k.s.OverQuota("q")
				}
				return k.s.InParts("db")
			}
			for range 300 {
				if !k.step() {
					t.Fatal("nothing starts after the end of an attempt")
				}
				if _, ok := k.s.Next(k.valid); ok {
					t.Fatal("two tasks start after the end of one attempt")
				}
				if n := waiting(); n < owners-20 {
					t.Fatalf("%d of %d ready queues wait, the others have returned to the order", n, owners)
				}
				k.s.Release(k.running[0].Worker, k.running[0].Class, k.running[0].Priority)
				if n := waiting(); n < owners-20 {
					t.Fatalf("%d of %d ready queues wait after an end, the others have returned to the order", n, owners)
				}
				k.running[0], _ = k.s.Next(k.valid)
				if err := k.s.Check(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkNextWithLimits is BenchmarkNext with named limits: two that are not full, and
// 10,000 full ones for which a million tasks wait.
func BenchmarkNextWithLimits(b *testing.B) {
	b.Run("2_limits", func(b *testing.B) {
		plain, limited := newSteady(scheduler.Demand{NoPrefetch: true}, scheduler.Capacity{}), newSteady(uses("api", "db"), scheduler.Capacity{})
		limited.s.SetNamedLimit("api", 100_000)
		limited.s.SetNamedLimit("db", 100_000)
		benchmarkPair(b, "limits", plain.step, limited.step)
	})
	b.Run("10000_full_1M_waiting", func(b *testing.B) {
		plain, limited := newSteady(scheduler.Demand{NoPrefetch: true}, scheduler.Capacity{}), newKeyed(10_000, 1_000_000)
		benchmarkPair(b, "limits", plain.step, limited.step)
	})
	for _, owners := range []int{100, 10_000} {
		for _, quota := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d_owners_wait_for_one_%s", owners, map[bool]string{false: "limit", true: "quota"}[quota]), func(b *testing.B) {
				plain, limited := newSteady(scheduler.Demand{NoPrefetch: true}, scheduler.Capacity{}), newCrowdedLimit(owners, quota)
				benchmarkPair(b, "limits", plain.step, limited.step)
			})
		}
	}
}
