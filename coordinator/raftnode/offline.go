package raftnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/internal/durable"
)

// SnapshotInfo describes a snapshot of a data directory.
type SnapshotInfo struct {
	ID          string
	Index, Term uint64
	Damage      string // why its metadata cannot be read; "" if it can

	configuration raft.Configuration
	configured    uint64 // index of the configuration
}

// Snapshots lists the snapshots of a data directory that is not in use, the newest
// first.
func Snapshots(dir string) ([]SnapshotInfo, error) {
	names, err := snapshotNames(dir)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(names, func(a, b string) int { return compareSnapshots(b, a) })
	list := make([]SnapshotInfo, len(names))
	for i, name := range names {
		list[i] = readSnapshotInfo(dir, name)
	}
	return list, nil
}

func readSnapshotInfo(dir, name string) SnapshotInfo {
	info := SnapshotInfo{ID: name}
	_, _ = fmt.Sscanf(name, "%d-%d-", &info.Term, &info.Index) // an unknown name has none
	var meta raft.SnapshotMeta
	text, err := os.ReadFile(filepath.Join(dir, snapshotsDir, name, "meta.json")) //nolint:gosec // a name in the data directory
	if err == nil {
		err = json.Unmarshal(text, &meta)
	}
	if err != nil {
		info.Damage = err.Error()
		return info
	}
	info.Index, info.Term = meta.Index, meta.Term
	info.configuration, info.configured = meta.Configuration, meta.ConfigurationIndex
	return info
}

// Replayed is what Replay found.
type Replayed struct {
	// Index and Term are those of the last entry of the log or the snapshot.
	Index, Term uint64
	// Applied is the index of the last entry that the state machine has applied.
	Applied uint64
	// Snapshot is the index of the snapshot from which it started; 0 = from nothing.
	Snapshot uint64
	// Servers is the last configuration, and Configured its index.
	Servers    []Server
	Configured uint64
	// Damage lists snapshots that were skipped because they cannot be read.
	Damage []string
}

// Replay rebuilds the state of a data directory that is not in use: the newest snapshot
// that can be read, then the entries of the log up to an index. It reads the whole log
// in any case. It changes nothing in the directory. A damaged log is a
// *logstore.DamageError; a HaltError names an entry that cannot be applied.
func Replay(dir string, log *logstore.Reader, fsm FSM, upTo uint64) (Replayed, error) {
	var r Replayed
	snapshots, err := Snapshots(dir)
	if err != nil {
		return r, err
	}
	for _, s := range snapshots {
		if err := r.restore(dir, s, fsm, upTo); err != nil {
			r.Damage = append(r.Damage, fmt.Sprintf("snapshot %s: %v", s.ID, err))
			continue
		}
		if r.Snapshot > 0 {
			break
		}
	}
	if first, _ := log.Bounds(); first > r.Snapshot+1 {
		return r, &logstore.DamageError{
			Path:   dir,
			Detail: fmt.Sprintf("no snapshot with the entries before %d, where the log starts, can be read", first),
		}
	}
	err = log.Entries(1, func(entry *raft.Log) error { return r.apply(entry, fsm, upTo) })
	return r, err
}

// restore reads a snapshot unless it has entries after upTo.
func (r *Replayed) restore(dir string, s SnapshotInfo, fsm FSM, upTo uint64) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("%v", problem)
		}
	}()
	if s.Damage != "" {
		return errors.New(s.Damage)
	}
	if s.Index > upTo {
		return nil
	}
	file, err := os.Open(filepath.Join(dir, snapshotsDir, s.ID, stateName)) //nolint:gosec // a name in the data directory
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // read only
	state, err := readState(fsm, file)
	if err != nil {
		return err
	}
	state.use()
	r.Index, r.Term, r.Snapshot, r.Applied = s.Index, s.Term, s.Index, state.index
	r.configure(s.configuration, s.configured)
	return nil
}

func (r *Replayed) apply(entry *raft.Log, fsm FSM, upTo uint64) error {
	if entry.Index <= r.Snapshot {
		return nil
	}
	r.Index, r.Term = entry.Index, entry.Term
	switch {
	case entry.Type == raft.LogConfiguration:
		r.configure(raft.DecodeConfiguration(entry.Data), entry.Index)
	case entry.Type == raft.LogCommand && entry.Index <= upTo:
		if halt, halted := (&fsmAdapter{fsm: fsm}).apply(entry).(Halt); halted {
			return &HaltError{Index: entry.Index, Term: entry.Term, Err: halt.Err}
		}
		r.Applied = entry.Index
	}
	return nil
}

func (r *Replayed) configure(c raft.Configuration, index uint64) {
	r.Servers, r.Configured = nil, index
	for _, s := range c.Servers {
		r.Servers = append(r.Servers, Server{ID: string(s.ID), Address: string(s.Address), Voter: s.Suffrage == raft.Voter})
	}
}

// foundTimeout is how long one call of the new store may take.
const foundTimeout = time.Minute

// Founding is the Raft state of a new cluster that starts with an existing state.
type Founding struct {
	Dir      string // exists, and has no Raft state
	Kind     logstore.Kind
	Server   Server // the only member
	Index    uint64 // of the state; the first entry of the log follows it
	Term     uint64 // the first leader has a later one
	Snapshot Snapshot
}

// Found writes the Raft state of a new cluster durably: term, an empty log, and a
// snapshot of its state with the configuration.
func Found(f Founding) error {
	contents, err := logstore.Inspect(f.Dir)
	if err != nil {
		return err
	}
	store, err := logstore.Open(logstore.Config{
		Dir: f.Dir, Kind: f.Kind, Contents: contents, HangTimeout: foundTimeout,
		Fatal: func(error) {}, // the calls return it, too
		// Nothing is logged: there is no torn write.
		RaftLogger: hclog.NewNullLogger(),
	})
	if err != nil {
		return err
	}
	if err := errors.Join(store.SetUint64([]byte("CurrentTerm"), f.Term), store.Close()); err != nil {
		return fmt.Errorf("storing the term: %w", err)
	}
	return f.writeSnapshot()
}

func (f *Founding) writeSnapshot() error {
	dir := filepath.Join(f.Dir, snapshotsDir)
	if err := durable.MakeDir(dir); err != nil {
		return err
	}
	files, err := raft.NewFileSnapshotStoreWithLogger(f.Dir, snapshotRetain, hclog.NewNullLogger())
	if err != nil {
		return fmt.Errorf("opening snapshots: %w", err)
	}
	_, transport := raft.NewInmemTransport(raft.ServerAddress(f.Server.Address)) // encodes addresses, and is not used otherwise
	sink, err := (&snapshotStore{FileSnapshotStore: files, dir: dir}).
		Create(raft.SnapshotVersionMax, f.Index, f.Term, configuration([]Server{f.Server}), f.Index, transport)
	if err != nil {
		return fmt.Errorf("creating snapshot: %w", err)
	}
	header := snapshotHeader{index: f.Index, term: f.Term, terms: termHistory{from: f.Index + 1}}
	if err := (&fsmSnapshot{snapshot: f.Snapshot, header: header, writer: f.writer}).Persist(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return fmt.Errorf("storing snapshot: %w", err)
	}
	return durable.SyncDir(dir)
}

// writer returns the writer for the state of the snapshot: at full speed, because no log is
// written beside it.
func (f *Founding) writer(sink raft.SnapshotSink) (io.WriteCloser, error) {
	file, err := openState(f.Dir, sink)
	if err != nil {
		return nil, err
	}
	return newWriteBehind(&durable.WritebackWriter{Writer: sink, File: file}), nil
}
