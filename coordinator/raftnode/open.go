package raftnode

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/membership/datadir"
)

// openStores opens the stores, after checking that they may be opened, and bootstraps
// the cluster if that is configured.
func (n *Node) openStores() (*logstore.Contents, error) {
	contents, err := n.inspect()
	if err != nil {
		return nil, err
	}
	n.store, err = logstore.Open(logstore.Config{
		Dir: n.cfg.DataDir, Kind: n.cfg.LogStore, Contents: contents,
		HadEntries: n.cfg.Identity.Identity().Stored, OnFirstStore: n.cfg.Identity.MarkStored,
		CommitIndex: n.commitIndex, MayDelete: n.mayDelete,
		HangTimeout: n.cfg.StoreHangTimeout, Wrap: n.cfg.WrapStore, Fatal: n.failure.fail, Closing: n.closing,
		Logger: n.log, RaftLogger: newHCLog(n.log),
	})
	if err != nil {
		return nil, err
	}
	if len(n.cfg.BootstrapServers) > 0 {
		if err := n.store.Bootstrap(configuration(n.cfg.BootstrapServers)); err != nil {
			return nil, errors.Join(fmt.Errorf("bootstrapping the cluster: %w", err), n.store.Close())
		}
	}
	return contents, nil
}

// inspect checks the data directory before anything in it is opened.
func (n *Node) inspect() (*logstore.Contents, error) {
	conflict, err := datadir.ReadConflict(n.cfg.DataDir)
	if err != nil {
		return nil, err
	}
	if conflict != nil {
		return nil, &ConflictError{ServerID: n.cfg.Identity.Identity().ServerID, Conflict: *conflict}
	}
	found := n.cfg.Inspected
	if found == nil {
		if found, err = Inspect(n.cfg.DataDir, n.cfg.LogStore); err != nil {
			return nil, err
		}
	}
	switch {
	case n.cfg.Identity.Identity().Stored && found.log.Last == 0 && found.snapshots == 0:
		return nil, &logstore.DamageError{Path: n.cfg.DataDir, Detail: "it contained raft state before and is empty now"}
	case len(n.cfg.BootstrapServers) > 0 && found.HasState:
		return nil, ErrNotEmpty
	}
	return found.log, nil
}

// lastCommand returns the index of the log's last entry that the FSM applies; 0 without one. The
// entries of raft's own that follow it are read, too, as raft does when it starts.
func (n *Node) lastCommand() (uint64, error) {
	first, err := n.store.FirstIndex()
	if err != nil {
		return 0, err
	}
	last, err := n.store.LastIndex()
	if err != nil {
		return 0, err
	}
	for i := last; i >= first && i > 0; i-- {
		var entry raft.Log
		if err := n.store.GetLog(i, &entry); err != nil {
			return 0, err
		}
		if entry.Type == raft.LogCommand {
			return i, nil
		}
	}
	return 0, nil
}

func configuration(servers []Server) (c raft.Configuration) {
	for _, s := range servers {
		c.Servers = append(c.Servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(s.ID), Address: raft.ServerAddress(s.Address)})
	}
	return c
}
