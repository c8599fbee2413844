package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/backup"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// withBackups lets a server write backups. barrier answers for the leader at n2:1.
func withBackups(barrier func() (uint64, error)) func(*Config) {
	return func(cfg *Config) {
		cfg.AskBarrier = func(_ context.Context, leader string) (uint64, error) {
			if leader != "n2:1" {
				return 0, errors.New("not the leader: " + leader)
			}
			return barrier()
		}
		cfg.Backups = &Backups{
			Members: func() []backup.Member { return []backup.Member{{ID: "n1", Address: "n1:1", Voter: true}} },
			Version: "v1", Wall: func() time.Time { return time.UnixMilli(1_700_000_000_000) },
		}
	}
}

// readBackup reads a stream to its end.
func readBackup(stream grpc.ServerStreamingClient[dtaskv1.BackupResponse], err error) ([]byte, error) {
	var file []byte
	for err == nil {
		var got *dtaskv1.BackupResponse
		if got, err = stream.Recv(); err == nil {
			file = append(file, got.GetData()...)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return file, err
}

// saved is a backup that was read completely.
type saved struct {
	backup.Manifest

	state   *fsm.Machine
	history []fsm.JobID
}

func (r *replica) save(t *testing.T, withHistory bool) (saved, error) {
	t.Helper()
	return r.saveAfter(t, withHistory, 0)
}

// saveAfter is save with the jobs that left the state after a log index.
func (r *replica) saveAfter(t *testing.T, withHistory bool, after uint64) (saved, error) {
	t.Helper()
	file, err := readBackup(r.admin.Backup(t.Context(), &dtaskv1.BackupRequest{WithHistory: withHistory, HistoryAfter: after}))
	if err != nil {
		return saved{}, err
	}
	from, err := backup.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	s := saved{Manifest: from.Manifest(), state: fsm.NewMachine()}
	s.state.SupportLevel(r.machine.MaxLevel())
	if err := s.state.Restore(from.State()); err != nil {
		t.Fatal(err)
	}
	if _, err := from.Finish(func(c backup.Chunk) error {
		s.history = append(s.history, fsm.JobID(c.Job))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return s, nil
}

// advance applies an entry.
func (r *replica) advance(t *testing.T) {
	t.Helper()
	var id fsm.WorkerID
	r.machine.Read(func(s *fsm.State, _ uint64) {
		if id = s.NextWorker(); s.WorkerByName("w9") != nil {
			id = s.WorkerByName("w9").ID
		}
	})
	r.leader.op(t, &fsm.RegisterWorker{ID: id, Name: "w9", Incarnation: "i", Slots: 1})
}

func TestABackupHasTheStateAndTheHistory(t *testing.T) {
	t.Parallel()
	_, change := withHistory(t, true, nil)
	r := setup(t, change, withBackups(nil))
	r.archiveTwo(t)
	r.advance(t) // entries without jobs follow
	for _, complete := range []bool{false, true} {
		got, err := r.save(t, complete)
		if err != nil {
			t.Fatal(err)
		}
		if got.ClusterID != testCluster || got.ServerID != "n1" || got.Index != r.machine.Index() || got.Term != 1 || got.Epoch != 1 ||
			got.Version != "v1" || len(got.Members) != 1 || got.History != complete || !got.CreatedAt.Equal(time.UnixMilli(1_700_000_000_000)) {
			t.Errorf("got %+v", got.Manifest)
		}
		var jobs []fsm.JobID
		got.state.Read(func(s *fsm.State, index uint64) {
			for j := range s.Jobs(0) {
				jobs = append(jobs, j.ID)
			}
			if index != got.Index || uint32(s.Level()) != got.Level {
				t.Errorf("the state is at index %d and level %d: %+v", index, s.Level(), got.Manifest)
			}
		})
		if len(jobs) != 1 || jobs[0] != 3 || (len(got.history) == 2) != complete {
			t.Errorf("jobs %v in the state, %v in the history", jobs, got.history)
		}
	}
}

// The next backup needs only the jobs that have left the state since.
func TestABackupHasTheHistoryAfterAnother(t *testing.T) {
	t.Parallel()
	_, change := withHistory(t, true, nil)
	r := setup(t, change, withBackups(nil))
	r.archiveTwo(t)
	first, err := r.save(t, true)
	if err != nil || len(first.history) != 2 {
		t.Fatalf("got %v, %v", first.history, err)
	}
	r.leader.op(t, &fsm.CancelJob{Job: 3, Reason: "enough"}, &fsm.Archive{Items: []fsm.JobID{3}})
	second, err := r.saveAfter(t, true, first.Index)
	if err != nil || len(second.history) != 1 || second.history[0] != 3 || second.HistoryAfter != first.Index {
		t.Errorf("got %v, %+v, %v", second.history, second.Manifest, err)
	}
	if third, err := r.saveAfter(t, true, second.Index); err != nil || len(third.history) != 0 {
		t.Errorf("got %v, %v", third.history, err)
	}
	_, err = r.saveAfter(t, true, r.machine.Index()+1)
	wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
}

// A follower may not have applied yet what its leader has acknowledged: it waits.
func TestABackupOfAFollowerHasWhatWasAcknowledgedBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan uint64, 1)
		var r *replica
		r = setup(t, withBackups(func() (uint64, error) {
			index := r.machine.Index() + 2 // of the leader, which is ahead
			asked <- index
			return index, nil
		}))
		r.leading(false)
		r.raft.set(func(f *fakeRaft) { f.id, f.address, f.state = "n2", "n2:1", "follower" })
		type result struct {
			saved
			err error
		}
		done := make(chan result, 1)
		go func() {
			got, err := r.save(t, false)
			done <- result{got, err}
		}()
		index := <-asked
		synctest.Wait()
		if len(done) > 0 {
			t.Fatal("it did not wait")
		}
		for r.machine.Index() < index {
			r.advance(t)
		}
		got := <-done
		if got.err != nil || got.Index < index {
			t.Fatalf("got index %d, %v, want %d or more", got.Index, got.err, index)
		}
		got.state.Read(func(s *fsm.State, _ uint64) {
			if s.WorkerByName("w9") == nil {
				t.Error("what was acknowledged is missing")
			}
		})
	})
}

// A replica that was cut off must not give a state that it can't confirm.
func TestAReplicaWithoutABarrierWritesNoBackup(t *testing.T) {
	t.Parallel()
	r := setup(t, withBackups(func() (uint64, error) { return 0, errors.New("no quorum") }))
	r.raft.set(func(f *fakeRaft) { f.err = errors.New("deposed") })
	_, err := r.save(t, false)
	wantError(t, err, codes.Unavailable, dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER)
	r.leading(false)
	for _, leader := range []string{"", "n2:1", "n3:1"} {
		r.raft.set(func(f *fakeRaft) { f.id, f.address, f.state = leader[:min(2, len(leader))], leader, "follower" })
		_, err := r.save(t, false)
		if err == nil {
			t.Errorf("a backup was written with the leader %q", leader)
		}
	}
	if _, err := r.admin.Barrier(t.Context(), &dtaskv1.BarrierRequest{}); err == nil {
		t.Error("a follower gave a barrier")
	}
}

func TestABarrierIsTheIndexOfTheConfirmedLeader(t *testing.T) {
	t.Parallel()
	r := setup(t)
	got, err := r.admin.Barrier(t.Context(), &dtaskv1.BarrierRequest{})
	if err != nil || got.GetIndex() != r.machine.Index() {
		t.Errorf("got %v, %v, want %d", got, err, r.machine.Index())
	}
}

func TestAReplicaThatLacksHistoryDoesNotWriteIt(t *testing.T) {
	t.Parallel()
	h, change := withHistory(t, true, nil)
	r := setup(t, change, withBackups(nil))
	r.archiveTwo(t)
	h.Restored(r.machine.Index() + 10) // as after a snapshot: jobs that left before are missing
	if err := h.Sync(t.Context(), r.machine.Index()+10); err != nil {
		t.Fatal(err)
	}
	for range 12 {
		r.advance(t)
	}
	_, err := r.save(t, true)
	wantError(t, err, codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY)
	if _, err := r.save(t, false); err != nil {
		t.Errorf("without the history: %v", err)
	}
}

// Each backup keeps a fork of the state.
func TestAReplicaWritesOneBackupAtATime(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan struct{}), make(chan struct{})
	var r *replica
	r = setup(t, withBackups(func() (uint64, error) {
		asked <- struct{}{}
		<-answer
		return r.machine.Index(), nil
	}))
	r.leading(false)
	r.raft.set(func(f *fakeRaft) { f.id, f.address, f.state = "n2", "n2:1", "follower" })
	first := make(chan error, 1)
	go func() {
		_, err := r.save(t, false)
		first <- err
	}()
	<-asked
	_, err := r.save(t, false)
	wantError(t, err, codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY)
	close(answer)
	if err := <-first; err != nil {
		t.Error(err)
	}
	go func() { <-asked }()
	if _, err := r.save(t, false); err != nil {
		t.Errorf("after the first one: %v", err)
	}
}
