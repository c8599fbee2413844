package raftnode

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// countedFile records how much was written at each sync.
type countedFile struct {
	content *bytes.Buffer
	synced  []int
	closed  bool
	err     error
}

func (f *countedFile) Sync() error {
	f.synced = append(f.synced, f.content.Len())
	return f.err
}

func (f *countedFile) Close() error {
	f.closed = true
	return nil
}

func TestASnapshotIsWrittenAtALimitedRateAndSyncedOnTheWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		content := new(bytes.Buffer)
		file := &countedFile{content: content}
		w := newRateLimitedWriter(content, file, nil)
		state := bytes.Repeat([]byte("state"), 9*snapshotBurst/5/2) // four bursts and a half
		began := time.Now()
		for rest := state; len(rest) > 0; {
			n, err := w.Write(rest[:min(len(rest), 300_000)])
			if err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		took := time.Since(began)
		if !bytes.Equal(content.Bytes(), state) {
			t.Error("other bytes were written")
		}
		// The limiter allows the first burst without a pause.
		if want := 3 * time.Second * snapshotBurst / snapshotRate; took < want-time.Millisecond || took > want+time.Millisecond {
			t.Errorf("took %v, want %v", took, want)
		}
		if len(file.synced) != 4 || file.synced[3] != 4*snapshotBurst {
			t.Errorf("synced after %v bytes, want four times, each after a burst of %d", file.synced, snapshotBurst)
		}
		if err := w.Close(); err != nil || !file.closed {
			t.Errorf("closing: %v", err)
		}
	})
}

func TestWritingASnapshotStopsWhenTheNodeClosesOrTheDiskFails(t *testing.T) {
	t.Parallel()
	closing := make(chan struct{})
	close(closing)
	broken := errors.New("the disk is gone")
	for want, w := range map[error]*rateLimitedWriter{
		ErrClosed: newRateLimitedWriter(new(bytes.Buffer), &countedFile{content: new(bytes.Buffer)}, closing),
		broken:    newRateLimitedWriter(new(bytes.Buffer), &countedFile{content: new(bytes.Buffer), err: broken}, nil),
	} {
		for range 50 { // bursts, some of them due: none is written without an error
			if n, err := w.Write(make([]byte, snapshotBurst)); !errors.Is(err, want) {
				t.Errorf("wrote %d bytes: %v, want %v", n, err, want)
			}
		}
	}
}

func TestReplicasTakeTheirFirstSnapshotsAtDifferentTimes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, endless)
	c.leader(t)
	var due []uint64
	for _, n := range c {
		eventually(t, n.id+" knows all servers", func() bool { return len(n.Servers()) == len(c) })
		due = append(due, n.snapshots.share(300))
	}
	slices.Sort(due)
	if want := []uint64{100, 200, 300}; !slices.Equal(due, want) {
		t.Errorf("the first snapshots are due after %v bytes, want %v", due, want)
	}
}

func TestTheNextSnapshotIsDueWhenTheLogIsAsLargeAsTheLast(t *testing.T) {
	t.Parallel()
	const least = 100
	n := newCluster(t, 1, func(cfg *Config) {
		slow(cfg)
		cfg.SnapshotBytes = least
	})[0]
	if got := n.snapshots.due(false); got != least {
		t.Errorf("without a snapshot one is due after %d bytes, want %d", got, least)
	}
	n.propose(t, 1, 50)
	n.snapshotAll(t)
	snapshots, err := n.snapshotFiles.List()
	if err != nil || len(snapshots) == 0 || snapshots[0].Size <= least {
		t.Fatalf("got the snapshots %+v, %v", snapshots, err)
	}
	size := uint64(snapshots[0].Size)
	if got := n.snapshots.due(false); got != size {
		t.Errorf("after a snapshot of %d bytes the next is due after %d", size, got)
	}
	n.stop(t)
	n.restart(t)
	if got := n.snapshots.due(false); got != size {
		t.Errorf("after a restart the next snapshot is due after %d bytes, and the last has %d", got, size)
	}
}
