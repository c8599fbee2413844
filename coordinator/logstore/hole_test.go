package logstore

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
)

// pausedBackend runs a function after its next read that finds no entry, or after its
// next read of the last index.
type pausedBackend struct {
	Backend
	afterMiss, afterLast func()
}

func (b *pausedBackend) GetLog(index uint64, log *raft.Log) error {
	err := b.Backend.GetLog(index, log)
	if run := b.afterMiss; run != nil && err != nil {
		b.afterMiss = nil
		run()
	}
	return err
}

func (b *pausedBackend) LastIndex() (uint64, error) {
	last, err := b.Backend.LastIndex()
	if run := b.afterLast; run != nil {
		b.afterLast = nil
		run()
	}
	return last, err
}

// A deposed leader still reads entries for its followers while it replaces its last
// ones by the next leader's.
func TestAnEntryThatIsReplacedWhileItIsReadIsNoHole(t *testing.T) {
	t.Parallel()
	s, f := openBolt(t, filepath.Join(t.TempDir(), FileName))
	b := &pausedBackend{Backend: s.backend}
	s.backend = b
	if err := errors.Join(s.StoreLogs(entries(1, 5)), s.DeleteRange(4, 5)); err != nil {
		t.Fatal(err)
	}
	b.afterMiss = func() {
		if err := s.StoreLogs(entries(4, 2)); err != nil {
			t.Error(err)
		}
	}
	var log raft.Log
	if err := s.GetLog(4, &log); err != nil || log.Index != 4 {
		t.Errorf("got entry %d, %v; want 4", log.Index, err)
	}
	if len(f.all()) != 0 {
		t.Errorf("fatal: %v", f.all())
	}
}

func TestAnEntryThatIsDeletedWhileItIsReadIsNoHole(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]bool{"started before": true, "started meanwhile": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, f := openBolt(t, filepath.Join(t.TempDir(), FileName))
			b := &pausedBackend{Backend: s.backend}
			s.backend = b
			if err := s.StoreLogs(entries(1, 3)); err != nil {
				t.Fatal(err)
			}
			remove := func() { // the transaction of DeleteRange
				if err := b.Backend.DeleteRange(4, 5); err != nil {
					t.Error(err)
				}
			}
			b.afterMiss = func() { // of entry 4: it exists from now on
				if err := s.StoreLogs(entries(4, 2)); err != nil {
					t.Error(err)
				}
				if first {
					s.deletions.started.Add(1)
				}
				b.afterLast = func() { // of the bounds: it is deleted before it is read again
					if !first {
						s.deletions.started.Add(1)
					}
					remove()
				}
			}
			var log raft.Log
			if err := s.GetLog(4, &log); !errors.Is(err, raft.ErrLogNotFound) {
				t.Errorf("got %v, want %v", err, raft.ErrLogNotFound)
			}
			if len(f.all()) != 0 {
				t.Errorf("fatal: %v", f.all())
			}
		})
	}
}
