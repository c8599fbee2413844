package cli

import (
	"bytes"

	"google.golang.org/grpc"

	"github.com/dtask/dtask/internal/backup"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// fakeBackup is the backup of the fake cluster.
type fakeBackup struct {
	cutBackup int // bytes that are missing at its end
}

func (f *fakeLeader) Backup(r *dtaskv1.BackupRequest, s grpc.ServerStreamingServer[dtaskv1.BackupResponse]) error {
	var file bytes.Buffer
	w, err := backup.NewWriter(&file, backup.Manifest{
		ClusterID: fakeCluster, ServerID: "n2", CreatedAt: noon, Version: "v0.1.0", Index: 77, Term: 3, Epoch: 1, Level: 1, History: r.GetWithHistory(),
	})
	if err != nil {
		return err
	}
	if _, err := w.Write([]byte("state")); err != nil {
		return err
	}
	for i := uint64(1); i <= 2 && r.GetWithHistory(); i++ {
		if err := w.Job(backup.Chunk{Job: i}); err != nil {
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
