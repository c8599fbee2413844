package logstore

import (
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// openTimeoutFactor is how many times Config.HangTimeout opening may take: it makes
// several calls.
const openTimeoutFactor = 10

// Config is what Open needs. All fields are required unless their comment says
// otherwise.
type Config struct {
	// Dir is the data directory. It must exist.
	Dir string
	// Kind is where the entries are stored. Empty: Bolt.
	Kind Kind
	// Contents is what Inspect found in Dir. Nothing may have changed since.
	Contents *Contents
	// HadEntries reports that the first entry was recorded with OnFirstStore before.
	HadEntries bool
	// OnFirstStore is called after the first entry is stored durably. Optional.
	OnFirstStore func() error
	// CommitIndex returns raft's commit index, which the store persists; 0 while raft
	// does not run. It must not block. Optional.
	CommitIndex func() uint64
	// MayDelete is called before entries first to last are deleted. Its error fails the
	// store, and nothing is deleted. It may call the Store. Optional.
	MayDelete func(first, last uint64) error
	// HangTimeout is how long one call may take before it is fatal.
	HangTimeout time.Duration
	// Wrap may put a layer between the Store and the disk, such as faults in tests.
	// Optional.
	Wrap func(Backend) Backend
	// Fatal is called when the store fails, possibly more than once and from any
	// goroutine.
	Fatal func(error)
	// Closing is closed when the replica starts to close: a compaction stops early.
	// Optional.
	Closing <-chan struct{}
	// Logger receives the messages of this package, RaftLogger those of raft-wal.
	Logger     *slog.Logger
	RaftLogger hclog.Logger
}

// Open opens the stores of a data directory that Inspect has read, and verifies every
// entry.
func Open(cfg Config) (*Store, error) {
	path := filepath.Join(cfg.Dir, FileName)
	bolt, err := raftboltdb.New(raftboltdb.Options{
		Path: path,
		BoltOptions: &bbolt.Options{
			Timeout:        time.Second,
			NoFreelistSync: true, // the free pages are found again at open: half the writes of a commit
			FreelistType:   bbolt.FreelistMapType,
		},
		MsgpackUseNewTimeFormat: true,
	})
	if err != nil {
		return nil, openError(path, err)
	}
	s := &Store{path: path, hang: openTimeoutFactor * cfg.HangTimeout, fatal: cfg.Fatal, closing: cfg.Closing, onFirstStore: cfg.OnFirstStore}
	s.stored.Store(cfg.HadEntries)
	contents := *cfg.Contents
	opened := Backend(bolt)
	err = s.call("opening the log", func() (err error) {
		marked, err := openMarkedBolt(cfg.Dir, bolt)
		if err != nil {
			return err
		}
		opened = marked
		db := &mmapReclaimer{Backend: marked, path: path}
		if err := contents.setKind(db, cfg.Kind); err != nil {
			return err
		}
		s.backend, err = openEntries(&cfg, db, &contents)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	if contents.kind == WAL {
		s.path, s.deletesAtOnce = filepath.Join(cfg.Dir, segmentsDir), true
	}
	s.committed = &committedLog{Backend: s.backend, known: cfg.CommitIndex, mayDelete: cfg.MayDelete}
	s.backend = s.committed
	if cfg.Wrap != nil {
		s.backend = cfg.Wrap(s.backend)
	}
	if err := s.call("reading the committed index", s.committed.load); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.hang = cfg.HangTimeout
	if err := s.check(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// openEntries returns the Backend for the kind of store.
func openEntries(cfg *Config, bolt Backend, contents *Contents) (Backend, error) {
	contents.bolt.warn(cfg.Logger)
	if contents.kind != WAL {
		return chunks{bolt}, nil
	}
	contents.wal.tail(filepath.Join(cfg.Dir, segmentsDir)).warn(cfg.Logger)
	return openWAL(cfg.Dir, bolt, contents, segmentSize, cfg.RaftLogger)
}

// Bootstrap writes the first configuration of a new cluster, as raft.BootstrapCluster
// does. That function refuses to repeat a bootstrap that a crash interrupted; this one
// does not.
func (s *Store) Bootstrap(configuration raft.Configuration) error {
	if err := s.SetUint64(keyTerm, 1); err != nil {
		return err
	}
	return s.StoreLog(&raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(configuration)})
}
