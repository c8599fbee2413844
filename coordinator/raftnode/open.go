package raftnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// openPatience is how many times longer than one call of the store its opening may take:
// it is a few of them.
const openPatience = 10

// openStores opens the stores, after looking whether they can be, and founds the cluster
// in them if that is asked for.
func (n *Node) openStores() error {
	if info, err := os.Stat(n.cfg.DataDir); err != nil || !info.IsDir() {
		return fmt.Errorf("data folder %s is not there: %w", n.cfg.DataDir, err)
	}
	state, err := n.examine()
	if err != nil {
		return err
	}
	if err := n.openBackend(state); err != nil {
		return err
	}
	n.store.stored.Store(n.cfg.Identity.Get().Stored)
	n.first, n.last = state.first, state.last
	if err := n.store.check(); err != nil {
		return errors.Join(err, n.store.close())
	}
	if len(n.cfg.Founders) > 0 {
		if err := n.found(); err != nil {
			return errors.Join(fmt.Errorf("founding the cluster: %w", err), n.store.close())
		}
	}
	return nil
}

// examine looks at the folder before anything in it is opened.
func (n *Node) examine() (storeState, error) {
	state, err := n.inspected()
	if err != nil {
		return state, err
	}
	snapshots, err := snapshotNames(n.cfg.DataDir)
	if err != nil {
		return state, err
	}
	empty := state.empty() && len(snapshots) == 0
	stored := n.cfg.Identity.Get().Stored
	switch {
	case stored && state.last == 0 && len(snapshots) == 0:
		return state, &DamageError{Path: n.cfg.DataDir, Detail: "it held raft state before, and holds none now"}
	case len(n.cfg.Founders) > 0 && !empty:
		return state, ErrNotEmpty
	}
	err = state.keptIn(n.cfg.DataDir, n.cfg.LogStore, !empty)
	return state, err
}

// inspected is what the store holds. To find that out, all of it is walked over.
func (n *Node) inspected() (storeState, error) {
	if f := n.cfg.Inspected; f != nil {
		return f.store, nil
	}
	return inspect(filepath.Join(n.cfg.DataDir, storeName))
}

// openBackend opens raft.db and, if they are not there, the entries.
func (n *Node) openBackend(state storeState) error {
	path := filepath.Join(n.cfg.DataDir, storeName)
	bolt, err := raftboltdb.New(raftboltdb.Options{
		Path: path,
		BoltOptions: &bbolt.Options{
			Timeout:        time.Second,
			NoFreelistSync: true, // the free pages are found anew at open: half the writes of a commit
			FreelistType:   bbolt.FreelistMapType,
		},
		MsgpackUseNewTimeFormat: true,
	})
	if err != nil {
		return openError(path, err)
	}
	s := &store{path: path, hang: openPatience * n.cfg.StoreHang, fatal: n.fatal, closing: n.closing, onFirstStore: n.cfg.Identity.markStored}
	err = s.call("opening the log", func() (err error) {
		db := &released{Backend: bolt, path: path}
		if err := markLayout(db, &state, n.cfg.LogStore); err != nil {
			return err
		}
		s.backend, err = n.layOut(db, state)
		return err
	})
	if err != nil {
		return errors.Join(err, bolt.Close())
	}
	if state.layout == layoutWAL {
		s.path, s.whole = filepath.Join(n.cfg.DataDir, segmentsDir), true
	}
	s.backend, s.hang = n.cfg.WrapStore(s.backend), n.cfg.StoreHang
	n.store = s
	return nil
}

// layOut is the Backend for entries that are stored as state says.
func (n *Node) layOut(bolt Backend, state storeState) (Backend, error) {
	switch state.layout {
	case layoutWAL:
		if state.wal.torn != "" {
			n.log.Warn("the last write of the log was not finished before the machine stopped: it is removed, nothing of it was acknowledged",
				"segment", state.wal.torn, "last_index", state.last)
		}
		return openWAL(n.cfg.DataDir, bolt, state, segmentSize, newHCLog(n.log))
	case layoutPieces:
		return pieces{bolt}, nil
	default:
		return bolt, nil
	}
}

// found writes what raft.BootstrapCluster would. It is written here because raft's
// refuses to repeat a founding that a crash cut in two.
func (n *Node) found() error {
	var servers []raft.Server
	for _, s := range n.cfg.Founders {
		servers = append(servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(s.ID), Address: raft.ServerAddress(s.Address)})
	}
	if err := n.store.SetUint64(keyTerm, 1); err != nil {
		return err
	}
	return n.store.StoreLog(&raft.Log{
		Index: 1, Term: 1, Type: raft.LogConfiguration,
		Data: raft.EncodeConfiguration(raft.Configuration{Servers: servers}),
	})
}
