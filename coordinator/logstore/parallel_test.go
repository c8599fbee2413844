package logstore

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
)

// heldStore is a store whose writes wait until they are let through.
type heldStore struct {
	*raft.InmemStore

	let     chan error // what becomes of one write each
	batches []int      // how many entries each write had; read when nobody writes
}

func (h *heldStore) StoreLogs(logs []*raft.Log) error {
	h.batches = append(h.batches, len(logs))
	if err := <-h.let; err != nil {
		return err
	}
	return h.InmemStore.StoreLogs(logs)
}

// desk is a ParallelLog over a held store, in a synctest bubble.
type desk struct {
	*ParallelLog

	disk   *heldStore
	shared atomic.Bool // the replica leads, and not alone
}

func newDesk() *desk {
	d := &desk{disk: &heldStore{InmemStore: raft.NewInmemStore(), let: make(chan error)}}
	d.ParallelLog = NewParallelLog(d.disk)
	d.Share(d.shared.Load)
	d.shared.Store(true)
	return d
}

// end lets all through that is pending, and closes the log.
func (d *desk) end() {
	close(d.disk.let)
	d.Close()
}

// begun starts a call and reports whether it has returned once nothing else can happen.
func begun(call func() error) (returned func() bool) {
	var done atomic.Bool
	go func() {
		_ = call()
		done.Store(true)
	}()
	return func() bool {
		synctest.Wait()
		return done.Load()
	}
}

func TestALeaderSendsWhatItsDiskIsStillWriting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		defer d.end()
		for i := range uint64(3) {
			if err := d.StoreLogs(entries(2*i+1, 2)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		var log raft.Log
		for i := range uint64(6) {
			if err := d.GetLog(i+1, &log); err != nil || log.Index != i+1 || Verify(&log) != "" {
				t.Errorf("entry %d is %+v, %v; %s", i+1, log, err, Verify(&log))
			}
		}
		if err := d.GetLog(7, &log); !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("an entry that there is not: %v", err)
		}
		if first, err := d.FirstIndex(); first != 1 || err != nil {
			t.Errorf("the log begins with %d, %v", first, err)
		}
		if last, err := d.LastIndex(); last != 6 || err != nil {
			t.Errorf("the log ends with %d, %v", last, err)
		}
		d.disk.let <- nil
		d.disk.let <- nil
		synctest.Wait()
		if want := []int{2, 4}; !slices.Equal(d.disk.batches, want) {
			t.Errorf("writes of %v entries, want %v: what waits is written together", d.disk.batches, want)
		}
		if last, err := d.disk.LastIndex(); last != 6 || err != nil {
			t.Errorf("the disk has %d, %v", last, err)
		}
	})
}

func TestNothingCountsAsStoredBeforeItIs(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(d *desk) error{
		"the answers of the others count":           func(d *desk) error { return d.WaitStored(2) },
		"entries are deleted":                       func(d *desk) error { return d.DeleteRange(1, 2) },
		"a leader that is alone goes on":            func(d *desk) error { d.shared.Store(false); return d.StoreLogs(entries(3, 1)) },
		"who leads no longer says that it has them": func(d *desk) error { d.shared.Store(false); return d.GetLog(2, new(raft.Log)) },
		"who leads no longer stores others behind":  func(d *desk) error { d.shared.Store(false); return d.StoreLog(entries(3, 1)[0]) },
		"others decide": func(d *desk) error {
			return d.StoreLog(&raft.Log{Index: 3, Term: 1, Type: raft.LogConfiguration})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDesk()
				defer d.end()
				if err := d.StoreLogs(entries(1, 2)); err != nil {
					t.Fatal(err)
				}
				returned := begun(func() error { return call(d) })
				if returned() {
					t.Fatal("not before the disk has them")
				}
				for range 2 { // the second one is its own, if it makes one
					select {
					case d.disk.let <- nil:
					default:
					}
					synctest.Wait()
				}
				if !returned() {
					t.Error("not when the disk has them, either")
				}
			})
		})
	}
}

func TestWhoIsAskedForWhatIsStoredDoesNotWaitForTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		defer d.end()
		_ = d.StoreLogs(entries(1, 2))
		d.disk.let <- nil
		_ = d.StoreLogs(entries(3, 1))
		if returned := begun(func() error { return d.WaitStored(2) }); !returned() {
			t.Error("entry 2 waits for entry 3")
		}
	})
}

func TestALeaderWaitsForADiskThatIsFarBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		defer d.end()
		large := func(index uint64) []*raft.Log {
			return []*raft.Log{{Index: index, Term: 1, Data: make([]byte, maxPendingBytes)}}
		}
		if returned := begun(func() error { return d.StoreLogs(large(1)) }); !returned() {
			t.Fatal("it waits with nothing pending")
		}
		returned := begun(func() error { return d.StoreLogs(large(2)) })
		if returned() {
			t.Fatal("it does not wait")
		}
		d.disk.let <- nil
		if !returned() {
			t.Error("it waits for ever")
		}
	})
}

func TestAfterAFailureNothingIsSaidToBeStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		defer d.end()
		if err := d.StoreLogs(entries(1, 2)); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for name, call := range map[string]func() error{
			"who waits": func() error { return d.WaitStored(1) },
			"who reads": func() error { d.shared.Store(false); return d.GetLog(1, new(raft.Log)) },
		} {
			wg.Go(func() {
				if err := call(); err == nil {
					t.Errorf("%s is told that it is stored", name)
				}
			})
		}
		synctest.Wait()
		d.disk.let <- errors.New("the disk is gone")
		wg.Wait()
		d.shared.Store(true)
		if err := d.StoreLogs(entries(3, 1)); err == nil {
			t.Error("more is taken")
		}
	})
}
