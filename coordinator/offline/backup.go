package offline

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/backup"
)

// BackupReport is what a backup contains. Its JSON form is part of the stable surface.
type BackupReport struct {
	File       string         `json:"file"`
	Encrypted  bool           `json:"encrypted"`
	Bytes      uint64         `json:"bytes"`  // of all files
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
	// HistoryFiles are the files that have the history, if it is not in File.
	HistoryFiles []string `json:"history_files"`
}

// openedBackup is a backup that is being read.
type openedBackup struct {
	*backup.Reader

	file      *os.File
	with      backup.Identities // that can read it; nil: none
	encrypted bool
	sum       digest   // of all that was read of an encrypted file
	history   bool     // it has the history, in the file or in segments
	segments  []string // paths of the segments that a state in a set needs
}

// digest counts what was read, and hashes it unless it is off.
type digest struct {
	hash.Hash

	bytes uint64
	off   bool
}

// Write implements io.Writer.
func (d *digest) Write(b []byte) (int, error) {
	d.bytes += uint64(len(b))
	if d.off {
		return len(b), nil
	}
	return d.Hash.Write(b)
}

// openBackup opens a backup, or the newest one in a directory of backups, and checks that
// this build can read its state. identities is the file with the keys that can read an
// encrypted one; empty: none.
func openBackup(path, identities string) (*openedBackup, error) {
	var with backup.Identities
	if identities != "" {
		var err error
		if with, err = backup.ReadIdentities(identities); err != nil {
			return nil, err
		}
	}
	set, err := backupsIn(path)
	if err != nil {
		return nil, err
	}
	dir := path
	if set != nil {
		path = filepath.Join(dir, set.States[len(set.States)-1].Name)
	}
	file, err := os.Open(path) //nolint:gosec // the operator names it
	if err != nil {
		return nil, fmt.Errorf("opening backup: %w", err)
	}
	b := &openedBackup{file: file, with: with, sum: digest{Hash: sha256.New()}}
	err = b.readManifest(io.TeeReader(file, &b.sum), backup.NewReader)
	b.sum.off = !b.encrypted // its Reader hashes the same bytes
	switch {
	case err != nil:
	case set != nil:
		err = b.findSegments(dir, set)
	case b.Manifest().HistoryAfter > 0:
		err = refused("it has only a part of the history, and belongs to the backups in its directory: name that")
	}
	if err != nil {
		return nil, errors.Join(b.explain(err), file.Close())
	}
	b.history = b.Manifest().History || set != nil
	return b, nil
}

// again begins to read the state from the beginning of the file, at the same time as b reads
// the whole file; nil if that is not possible, as for a pipe.
func (b *openedBackup) again() (*openedBackup, error) {
	info, err := b.file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	other := &openedBackup{file: b.file, with: b.with, history: b.history, segments: b.segments}
	return other, b.explain(other.readManifest(io.NewSectionReader(b.file, 0, math.MaxInt64), backup.NewStateReader))
}

// readManifest begins to read what the file has.
func (b *openedBackup) readManifest(file io.Reader, read func(io.Reader) (*backup.Reader, error)) error {
	plain, encrypted, err := backup.Decrypt(file, b.with)
	if err != nil {
		return err
	}
	b.encrypted = encrypted
	if b.Reader, err = read(plain); err != nil {
		return err
	}
	if m := b.Manifest(); fsm.Level(m.Level) > fsm.MaxLevel {
		return &fsm.LevelError{Level: fsm.Level(m.Level), Max: fsm.MaxLevel, Version: m.Version}
	}
	return nil
}

// backupsIn returns the backups in a directory; nil if the path is that of a file.
func backupsIn(path string) (*backup.Set, error) {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return nil, nil //nolint:nilerr,nilnil // nil means that it is no directory; opening it reports errors
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("opening backup: %w", err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	set := backup.ParseSet(names)
	if len(set.States) == 0 {
		return nil, refused("%s has no backup: name a file, or a directory of dtaskctl backup save --to", path)
	}
	return &set, nil
}

// findSegments finds the history of the state.
func (b *openedBackup) findSegments(dir string, set *backup.Set) error {
	to := b.Manifest().HistoryTo
	chain, complete := set.Chain(to)
	if !complete {
		return refused("history files are missing in %s: the state needs the history up to log entry %d; restore the file alone to go without", dir, to)
	}
	for _, segment := range chain {
		b.segments = append(b.segments, filepath.Join(dir, segment.Name))
	}
	return nil
}

// finish reads the rest of the backup and its segments, and checks that they are complete
// and belong together.
func (b *openedBackup) finish(take func(backup.Chunk) error) (backup.Totals, error) {
	totals, err := b.Finish(take)
	if err != nil {
		return totals, b.explain(err)
	}
	totals.Bytes = b.sum.bytes // also those of the encryption
	after := uint64(0)
	for _, path := range b.segments {
		part, to, err := b.readSegment(path, after, take)
		if err != nil {
			return totals, fmt.Errorf("%s: %w", path, err)
		}
		totals.Bytes += part.Bytes
		totals.Jobs += part.Jobs
		after = to
	}
	return totals, nil
}

// readSegment reads a segment that begins after a log index, and returns where it ends.
func (b *openedBackup) readSegment(path string, after uint64, take func(backup.Chunk) error) (totals backup.Totals, to uint64, err error) {
	file, err := os.Open(path) //nolint:gosec // in the operator's directory
	if err != nil {
		return totals, 0, err
	}
	defer func() { _ = file.Close() }() // read only
	info, err := file.Stat()
	if err != nil {
		return totals, 0, err
	}
	plain, _, err := backup.Decrypt(file, b.with)
	if err != nil {
		return totals, 0, err
	}
	r, err := backup.NewReader(plain)
	if err != nil {
		return totals, 0, err
	}
	m, of := r.Manifest(), b.Manifest()
	if m.ClusterID != of.ClusterID || m.HistoryAfter != after || m.Index > of.HistoryTo {
		return totals, 0, fmt.Errorf("%w: it has the history of cluster %s from %d to %d", backup.ErrDamaged, m.ClusterID, m.HistoryAfter, m.Index)
	}
	totals, err = r.Finish(take)
	totals.Bytes = uint64(info.Size()) //nolint:gosec // not negative; with that of the encryption
	return totals, m.Index, err
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
	if err := machine.RestoreToRewrite(b.State()); err != nil {
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

// InspectBackup reads a whole backup into a state, as a restore does, and returns what it
// contains. identities is the file with the keys that can read an encrypted one; empty: none.
// An error means that it cannot be restored by this build.
func InspectBackup(path, identities string) (report *BackupReport, err error) {
	b, err := openBackup(path, identities)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	machine, err := b.readState()
	if err != nil {
		return nil, err
	}
	totals, err := b.finish(nil)
	if err != nil {
		return nil, err
	}
	m, sum := b.Manifest(), totals.Whole[:]
	if b.encrypted {
		sum = b.sum.Sum(nil)
	}
	r := &BackupReport{
		File: b.file.Name(), Encrypted: b.encrypted, HistoryFiles: append([]string{}, b.segments...), Bytes: totals.Bytes, SHA256: hex.EncodeToString(sum), ClusterID: m.ClusterID, ServerID: m.ServerID,
		CreatedAt: m.CreatedAt.UTC().Format(time.RFC3339Nano), Version: m.Version, Index: m.Index, Term: m.Term, Epoch: m.Epoch, Level: m.Level,
		Members: []Member{}, Jobs: map[string]int{}, History: b.history, HistoryJobs: totals.Jobs,
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
