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

// heldStore is a store whose writes wait for the test.
type heldStore struct {
	*raft.InmemStore

	let     chan error // the result of one write each
	batches []int      // how many entries each write had; read when nobody writes
}

func (h *heldStore) StoreLogs(logs []*raft.Log) error {
	h.batches = append(h.batches, len(logs))
	if err := <-h.let; err != nil {
		return err
	}
	return h.InmemStore.StoreLogs(logs)
}

// heldLog is a ParallelLog over a heldStore, in a synctest bubble.
type heldLog struct {
	*ParallelLog

	disk   *heldStore
	shared atomic.Bool // the replica leads and needs another vote
}

func newHeldLog() *heldLog {
	d := &heldLog{disk: &heldStore{InmemStore: raft.NewInmemStore(), let: make(chan error)}}
	d.ParallelLog = NewParallelLog(d.disk)
	d.Share(d.shared.Load)
	d.shared.Store(true)
	return d
}

// end completes all pending writes and closes the log.
func (d *heldLog) end() {
	close(d.disk.let)
	d.Close()
}

// started starts a call and reports whether it has returned once all goroutines wait.
func started(call func() error) (returned func() bool) {
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

func TestALeaderReadsEntriesThatItsDiskIsStillWriting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newHeldLog()
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
			t.Errorf("a missing entry: %v", err)
		}
		if first, err := d.FirstIndex(); first != 1 || err != nil {
			t.Errorf("the log starts with %d, %v", first, err)
		}
		if last, err := d.LastIndex(); last != 6 || err != nil {
			t.Errorf("the log ends with %d, %v", last, err)
		}
		d.disk.let <- nil
		d.disk.let <- nil
		synctest.Wait()
		if want := []int{2, 4}; !slices.Equal(d.disk.batches, want) {
			t.Errorf("writes of %v entries, want %v: pending entries are written together", d.disk.batches, want)
		}
		if last, err := d.disk.LastIndex(); last != 6 || err != nil {
			t.Errorf("the disk has %d, %v", last, err)
		}
	})
}

func TestNoEntryCountsAsStoredBeforeItIs(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(d *heldLog) error{
		"acknowledgments count":              func(d *heldLog) error { return d.WaitStored(2) },
		"entries are deleted":                func(d *heldLog) error { return d.DeleteRange(1, 2) },
		"the only voter continues":           func(d *heldLog) error { d.shared.Store(false); return d.StoreLogs(entries(3, 1)) },
		"a deposed leader returns them":      func(d *heldLog) error { d.shared.Store(false); return d.GetLog(2, new(raft.Log)) },
		"a deposed leader stores later ones": func(d *heldLog) error { d.shared.Store(false); return d.StoreLog(entries(3, 1)[0]) },
		"the configuration changes": func(d *heldLog) error {
			return d.StoreLog(&raft.Log{Index: 3, Term: 1, Type: raft.LogConfiguration})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newHeldLog()
				defer d.end()
				if err := d.StoreLogs(entries(1, 2)); err != nil {
					t.Fatal(err)
				}
				returned := started(func() error { return call(d) })
				if returned() {
					t.Fatal("it returned before the disk has the entries")
				}
				for range 2 { // the second one is the call's own, if it makes one
					select {
					case d.disk.let <- nil:
					default:
					}
					synctest.Wait()
				}
				if !returned() {
					t.Error("it did not return after the disk has the entries")
				}
			})
		})
	}
}

func TestWaitStoredIgnoresLaterEntries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newHeldLog()
		defer d.end()
		_ = d.StoreLogs(entries(1, 2))
		d.disk.let <- nil
		_ = d.StoreLogs(entries(3, 1))
		if returned := started(func() error { return d.WaitStored(2) }); !returned() {
			t.Error("entry 2 waits for entry 3")
		}
	})
}

func TestALeaderWaitsForItsDiskAtTheLimitOfPendingBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newHeldLog()
		defer d.end()
		large := func(index uint64) []*raft.Log {
			return []*raft.Log{{Index: index, Term: 1, Data: make([]byte, maxPendingBytes)}}
		}
		if returned := started(func() error { return d.StoreLogs(large(1)) }); !returned() {
			t.Fatal("it waits with nothing pending")
		}
		returned := started(func() error { return d.StoreLogs(large(2)) })
		if returned() {
			t.Fatal("it does not wait")
		}
		d.disk.let <- nil
		if !returned() {
			t.Error("it waits forever")
		}
	})
}

func TestAfterAFailureNoEntryCountsAsStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newHeldLog()
		defer d.end()
		if err := d.StoreLogs(entries(1, 2)); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for name, call := range map[string]func() error{
			"waiting": func() error { return d.WaitStored(1) },
			"reading": func() error { d.shared.Store(false); return d.GetLog(1, new(raft.Log)) },
		} {
			wg.Go(func() {
				if err := call(); err == nil {
					t.Errorf("%s: the entry counts as stored", name)
				}
			})
		}
		synctest.Wait()
		d.disk.let <- errors.New("the disk is gone")
		wg.Wait()
		d.shared.Store(true)
		if err := d.StoreLogs(entries(3, 1)); err == nil {
			t.Error("another entry was accepted")
		}
	})
}
