package offline

import (
	"errors"
	"math"

	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/fsm"
)

// Report is what a data directory contains. Its JSON form is part of the stable surface.
type Report struct {
	DataDir      string     `json:"data_dir"`
	Format       int        `json:"format"`
	ClusterID    string     `json:"cluster_id"` // empty = unknown
	ServerID     string     `json:"server_id"`
	ConfiguredID string     `json:"configured_id"` // on the command line
	Instance     string     `json:"instance"`
	LogStore     string     `json:"log_store"` // empty = nothing was stored
	Term         uint64     `json:"term"`
	Vote         *Vote      `json:"vote"` // null = none
	Log          Log        `json:"log"`
	Snapshots    []Snapshot `json:"snapshots"` // the newest first
	LastIndex    uint64     `json:"last_index"`
	LastTerm     uint64     `json:"last_term"`
	// Committed is the highest index that the replica knew to be committed; 0 = unknown.
	Committed uint64 `json:"committed"`
	// Applied is the index of the state that Epoch and Jobs describe: the whole log.
	Applied uint64 `json:"applied"`
	Epoch   uint64 `json:"epoch"`
	// Members is the last configuration, which may not be committed.
	Members []Member `json:"members"`
	// Jobs counts the jobs that are in the state, by their own state. Older jobs are in
	// the history.
	Jobs     map[string]int    `json:"jobs"`
	Conflict *datadir.Conflict `json:"conflict"` // null = none
	// Quarantined are earlier content of this directory that was moved aside.
	Quarantined []string `json:"quarantined"`
	Damage      []string `json:"damage"` // empty = none
}

// Vote is the last vote of a replica.
type Vote struct {
	Term      uint64 `json:"term"`
	Candidate string `json:"candidate"`
}

// Log is the range of a log; zero if it is empty.
type Log struct {
	FirstIndex uint64 `json:"first_index"`
	FirstTerm  uint64 `json:"first_term"`
	LastIndex  uint64 `json:"last_index"`
	LastTerm   uint64 `json:"last_term"`
	Unfinished bool   `json:"unfinished_write"` // the last write was not finished; the next start removes it
}

// Snapshot is a snapshot of the state.
type Snapshot struct {
	ID    string `json:"id"`
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
}

// Member is a member of the cluster.
type Member struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	Voter   bool   `json:"voter"`
}

// Inspect reads the data directory of a stopped replica and changes nothing in it. With
// a *logstore.DamageError it also returns what it could read.
func Inspect(path string) (*Report, error) {
	d, err := open(path)
	if d == nil {
		return nil, err
	}
	r := d.identify()
	if err == nil {
		err = d.read(r)
	}
	if IsDamage(err) {
		r.Damage = append(r.Damage, err.Error())
	} else if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return r, errors.Join(err, d.Close())
}

// IsDamage reports whether an error means that a directory is damaged.
func IsDamage(err error) bool {
	var damage *logstore.DamageError
	var halt *raftnode.HaltError
	return errors.As(err, &damage) || errors.As(err, &halt)
}

func (d *directory) identify() *Report {
	return &Report{
		DataDir: d.Path, Format: datadir.Format, ClusterID: d.Identity.ClusterID, ServerID: d.Identity.ServerID,
		ConfiguredID: d.Identity.Base(), Instance: d.Identity.Instance,
		Snapshots: []Snapshot{}, Members: []Member{}, Jobs: map[string]int{}, Quarantined: []string{}, Damage: []string{},
	}
}

// read fills a report. What it read before an error stays in it.
func (d *directory) read(r *Report) error {
	quarantined, err := datadir.Quarantined(d.Path)
	if err != nil {
		return err
	}
	r.Quarantined = append(r.Quarantined, quarantined...)
	if r.Conflict, err = datadir.ReadConflict(d.Path); err != nil {
		return err
	}
	if err := d.readStores(r); err != nil {
		return err
	}
	machine, found, err := d.replay(archived{}, math.MaxUint64)
	r.Damage = append(r.Damage, found.Damage...)
	if err != nil {
		return err
	}
	r.LastIndex, r.LastTerm, r.Applied = found.Index, found.Term, machine.Index()
	for _, m := range found.Servers {
		r.Members = append(r.Members, Member(m))
	}
	machine.Read(func(s *fsm.State, _ uint64) {
		r.Epoch = s.Epoch()
		for job := range s.Jobs(0) {
			r.Jobs[job.State.String()]++
		}
	})
	return nil
}

// readStores describes log, vote and snapshots.
func (d *directory) readStores(r *Report) error {
	r.LogStore = string(d.log.Kind())
	term, voteTerm, candidate, err := d.log.Term()
	if err != nil {
		return err
	}
	r.Term = term
	if voteTerm > 0 {
		r.Vote = &Vote{Term: voteTerm, Candidate: candidate}
	}
	snapshots, err := raftnode.Snapshots(d.Path)
	if err != nil {
		return err
	}
	for _, s := range snapshots {
		r.Snapshots = append(r.Snapshots, Snapshot{ID: s.ID, Index: s.Index, Term: s.Term})
	}
	r.Log.FirstIndex, r.Log.LastIndex = d.log.Bounds()
	r.Log.Unfinished = d.log.Torn()
	if r.Log.FirstTerm, r.Log.LastTerm, err = d.log.Terms(); err != nil {
		return err
	}
	_, r.Committed, err = d.conflict()
	return err
}

// conflict returns the conflict of the directory, if any, and the highest index that the
// replica knew to be committed; 0 if it is unknown. It reads the whole log.
func (d *directory) conflict() (*datadir.Conflict, uint64, error) {
	committed, err := d.log.Committed()
	if err != nil {
		return nil, 0, err
	}
	// A snapshot has committed entries only, and may be newer than what was persisted.
	snapshots, err := raftnode.Snapshots(d.Path)
	if err != nil {
		return nil, 0, err
	}
	for _, s := range snapshots {
		if s.Damage == "" {
			committed = max(committed, s.Index)
		}
	}
	conflict, err := datadir.ReadConflict(d.Path)
	if err != nil || conflict == nil {
		return nil, committed, err
	}
	return conflict, max(conflict.Committed, committed), nil
}
