package simulation_test

import (
	"errors"
	"math/rand/v2"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/coordinator/logstore"
)

var errDisk = errors.New("input/output error")

// disk injects faults into a replica's store. Each process of the replica has
// its own wrapper; a fault affects the one that runs.
type disk struct {
	mu   sync.Mutex // guards the following fields
	rng  *rand.Rand
	fail bool          // the next write fails
	flip bool          // the next entry that is read has a flipped bit
	hang chan struct{} // writes wait until it is closed; nil: no waiting
}

// fate returns the outcome of a write.
func (d *disk) fate() error {
	d.mu.Lock()
	hang, fail := d.hang, d.fail
	d.fail = false
	d.mu.Unlock()
	if hang != nil {
		<-hang
	}
	if fail {
		return errDisk
	}
	return nil
}

// stall lets writes hang until the returned function is called.
func (d *disk) stall() (end func()) {
	hang := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hang = hang
	return sync.OnceFunc(func() {
		d.mu.Lock()
		d.hang = nil
		d.mu.Unlock()
		close(hang)
	})
}

func (d *disk) set(fail, flip bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail, d.flip = fail, flip
}

// wrap wraps a store.
func (d *disk) wrap(b logstore.Backend) logstore.Backend { return &faultyStore{b, d} }

type faultyStore struct {
	logstore.Backend
	disk *disk
}

func (s *faultyStore) StoreLogs(logs []*raft.Log) error {
	if err := s.disk.fate(); err != nil {
		return err
	}
	return s.Backend.StoreLogs(logs)
}

func (s *faultyStore) Set(key, value []byte) error {
	if err := s.disk.fate(); err != nil {
		return err
	}
	return s.Backend.Set(key, value)
}

func (s *faultyStore) GetLog(index uint64, log *raft.Log) error {
	if err := s.Backend.GetLog(index, log); err != nil {
		return err
	}
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	if s.disk.flip && len(log.Data) > 0 {
		s.disk.flip = false
		log.Data[s.disk.rng.IntN(len(log.Data))] ^= 1 << s.disk.rng.IntN(8)
	}
	return nil
}
