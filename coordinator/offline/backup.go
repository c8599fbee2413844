package offline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"time"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/backup"
)

// BackupReport is what a backup contains. Its JSON form is part of the stable surface.
type BackupReport struct {
	File       string         `json:"file"`
	Bytes      uint64         `json:"bytes"`
	SHA256     string         `json:"sha256"` // of the file
	ClusterID  string         `json:"cluster_id"`
	ServerID   string         `json:"server_id"` // of the coordinator that wrote it
	CreatedAt  string         `json:"created_at"`
	Version    string         `json:"version"` // of that coordinator
	Index      uint64         `json:"index"`   // the last log entry in it
	Term       uint64         `json:"term"`
	Epoch      uint64         `json:"epoch"`
	Level      uint32         `json:"level"`
	Members    []Member       `json:"members"`
	Jobs       map[string]int `json:"jobs"` // in the state, by their own state
	Workers    int            `json:"workers"`
	Identities int            `json:"identities"`
	JoinTokens int            `json:"join_tokens"`
	// History reports that the finished jobs are included that had left the state;
	// HistoryJobs counts them.
	History     bool   `json:"history"`
	HistoryJobs uint64 `json:"history_jobs"`
}

// openedBackup is a backup that is being read.
type openedBackup struct {
	*backup.Reader

	file *os.File
	sum  hash.Hash // of all that was read
}

// openBackup opens a backup and checks that this build can read its state.
func openBackup(path string) (*openedBackup, error) {
	file, err := os.Open(path) //nolint:gosec // the operator names it
	if err != nil {
		return nil, fmt.Errorf("opening backup: %w", err)
	}
	b := &openedBackup{file: file, sum: sha256.New()}
	if b.Reader, err = backup.NewReader(io.TeeReader(file, b.sum)); err == nil {
		if m := b.Manifest(); fsm.Level(m.Level) > fsm.MaxLevel {
			err = &fsm.LevelError{Level: fsm.Level(m.Level), Max: fsm.MaxLevel, Version: m.Version}
		}
	}
	if err != nil {
		return nil, errors.Join(b.explain(err), file.Close())
	}
	return b, nil
}

// Close closes the file, which was only read.
func (b *openedBackup) Close() error { return b.file.Close() }

// explain adds the name of the file to an error.
func (b *openedBackup) explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", b.file.Name(), err)
}

// readState reads the state, and checks that it is the one that the manifest describes.
func (b *openedBackup) readState() (*fsm.Machine, error) {
	machine, m := fsm.NewMachine(), b.Manifest()
	if err := machine.Restore(b.State()); err != nil {
		return nil, b.explain(err)
	}
	var err error
	machine.Read(func(s *fsm.State, index uint64) {
		if index != m.Index || s.ClusterID() != m.ClusterID || s.Epoch() != m.Epoch || uint32(s.Level()) != m.Level {
			err = fmt.Errorf("%w: its state is not the one that its manifest describes", backup.ErrDamaged)
		}
	})
	return machine, b.explain(err)
}

// Fetch implements history.Source: the jobs in the backup. It succeeds only if the whole
// file is complete and unchanged.
func (b *openedBackup) Fetch(ctx context.Context, _ history.Position, _ uint64, take func(c history.Chunk, complete bool) error) (bool, error) {
	_, err := b.Finish(func(c backup.Chunk) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return take(history.Chunk{
			Position: history.Position{Index: c.Index, Job: fsm.JobID(c.Job)}, Number: c.Number, Total: c.Total, Data: c.Data,
		}, true)
	})
	return err == nil, b.explain(err)
}

// InspectBackup reads a whole backup into a state, as a restore does, and returns what it
// contains. An error means that it cannot be restored by this build.
func InspectBackup(path string) (report *BackupReport, err error) {
	b, err := openBackup(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	machine, err := b.readState()
	if err != nil {
		return nil, err
	}
	totals, err := b.Finish(nil)
	if err != nil {
		return nil, b.explain(err)
	}
	m := b.Manifest()
	r := &BackupReport{
		File: path, Bytes: totals.Bytes, SHA256: hex.EncodeToString(b.sum.Sum(nil)), ClusterID: m.ClusterID, ServerID: m.ServerID,
		CreatedAt: m.CreatedAt.UTC().Format(time.RFC3339Nano), Version: m.Version, Index: m.Index, Term: m.Term, Epoch: m.Epoch, Level: m.Level,
		Members: []Member{}, Jobs: map[string]int{}, History: m.History, HistoryJobs: totals.Jobs,
	}
	for _, x := range m.Members {
		r.Members = append(r.Members, Member(x))
	}
	machine.Read(func(s *fsm.State, _ uint64) {
		r.Workers, r.Identities, r.JoinTokens = s.WorkerCount(), s.IdentityCount(), s.JoinTokenCount()
		for job := range s.Jobs(0) {
			r.Jobs[job.State.String()]++
		}
	})
	return r, nil
}
