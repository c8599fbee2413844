package cli

import (
	"bytes"

	"google.golang.org/grpc"

	"github.com/dtask/dtask/internal/backup"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// fakeBackup is the backup of the fake cluster.
type fakeBackup struct {
	cutBackup int    // bytes that are missing at its end
	index     uint64 // of the state; it grows with each backup
	foreign   bool   // it is that of another cluster
	schedule  *dtaskv1.BackupSchedule
}

func (f *fakeLeader) Backup(r *dtaskv1.BackupRequest, s grpc.ServerStreamingServer[dtaskv1.BackupResponse]) error {
	f.mu.Lock()
	f.index += 10
	index := f.index
	f.mu.Unlock()
	cluster := fakeCluster
	if f.foreign {
		cluster = foreignCluster
	}
	var file bytes.Buffer
	w, err := backup.NewWriter(&file, backup.Manifest{
		ClusterID: cluster, ServerID: "n2", CreatedAt: noon, Version: "v0.1.0", Index: index, Term: 3, Epoch: 1, Level: 1,
		History: r.GetWithHistory(), HistoryAfter: r.GetHistoryAfter(),
	})
	if err != nil {
		return err
	}
	if _, err := w.Write([]byte("state")); err != nil {
		return err
	}
	// Two jobs have left before the first backup, and one before the third.
	for i, left := range []uint64{1, 2, 25} {
		if left > index || left <= r.GetHistoryAfter() || !r.GetWithHistory() {
			continue
		}
		if err := w.Job(backup.Chunk{Index: left, Job: uint64(i) + 1}); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	b := file.Bytes()[:file.Len()-f.cutBackup]
	for len(b) > 0 {
		n := min(len(b), 100)
		if err := s.Send(&dtaskv1.BackupResponse{Data: b[:n]}); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
