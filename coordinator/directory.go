package coordinator

import (
	"errors"
	"fmt"
	"time"

	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/durable"
)

// directory is the opened data directory and what was in it.
type directory struct {
	*datadir.Dir

	serverID    string // not the configured one if the cluster gave another
	found       *raftnode.Inspection
	quarantined []string
	conflict    *datadir.Conflict // nil if it has none
	mayRejoin   bool              // dtaskd rejoin emptied it
}

// openDirectory locks the data directory and checks it before anything runs on it. An
// error of what is in it is a *startError.
func openDirectory(cfg *Config) (*directory, error) {
	if err := durable.MakeDir(cfg.DataDir); err != nil {
		return nil, fmt.Errorf("creating data directory: %w", err)
	}
	dir, err := datadir.Open(cfg.DataDir, cfg.ID)
	if _, damaged := errors.AsType[*logstore.DamageError](err); damaged {
		return nil, &startError{err}
	}
	if err != nil {
		return nil, fmt.Errorf("opening data directory: %w", err)
	}
	d := &directory{Dir: dir, serverID: dir.Identity().ServerID}
	if err := d.inspect(cfg); err != nil {
		return nil, errors.Join(&startError{err}, dir.Close())
	}
	return d, nil
}

func (d *directory) inspect(cfg *Config) (err error) {
	if id := d.Identity(); fsm.Level(id.Level) > cfg.Seams.MaxLevel {
		return &fsm.LevelError{Level: fsm.Level(id.Level), Max: cfg.Seams.MaxLevel, Version: id.LevelVersion}
	}
	if d.conflict, err = datadir.ReadConflict(cfg.DataDir); err != nil {
		return err
	}
	if d.found, err = raftnode.Inspect(cfg.DataDir, cfg.LogStore); err != nil {
		return err
	}
	if d.Identity().Stored && !d.found.HasState {
		return &logstore.DamageError{Path: cfg.DataDir, Detail: "it had Raft state and is empty now"}
	}
	if d.quarantined, err = datadir.Quarantined(cfg.DataDir); err != nil {
		return err
	}
	d.mayRejoin, err = datadir.MayRejoin(cfg.DataDir)
	return err
}

// startError is why a data directory could not be opened: nothing was served from it
// before, and this process does not use it any more.
type startError struct{ err error }

// Error implements error.
func (e *startError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *startError) Unwrap() error { return e.err }

// unusableDirectory returns why the data directory must be quarantined; nil if it need
// not.
func unusableDirectory(err error) error {
	if errors.Is(err, membership.ErrStale) {
		return err
	}
	damage, damaged := errors.AsType[*logstore.DamageError](err)
	if _, starting := errors.AsType[*startError](err); starting && damaged {
		return damage
	}
	return nil
}

// asFatal turns the error of a start into what Run returns.
func asFatal(err error) error {
	if start, ok := errors.AsType[*startError](err); ok {
		return &FatalError{start.err}
	}
	return err
}

// quarantine renames a data directory that must not be used. It returns an error that
// tells what to do, unless this replica rejoins automatically.
func quarantine(cfg *Config, why error) error {
	kept, err := datadir.Quarantine(cfg.DataDir, time.Now())
	if err != nil {
		return errors.Join(why, err)
	}
	cfg.Logger.Error("quarantined data directory", "err", why, "data_dir", cfg.DataDir,
		"kept_as", kept, "auto_rejoin", cfg.AutoRejoin)
	if cfg.AutoRejoin {
		return nil
	}
	return fmt.Errorf("%w\nnothing was deleted: the content of %s is in %s\n%s",
		why, cfg.DataDir, kept, cfg.rejoinAdvice())
}

// rejoinAdvice tells how a replica without its data directory comes back.
func (c *Config) rejoinAdvice() string {
	if len(c.Peers) < 2 {
		return "this cluster has no other replica: restore the data directory from a backup; " +
			"to start an empty cluster, move the damaged one elsewhere"
	}
	command := c.Command
	if command == "" {
		command = "dtaskd … (as before)"
	}
	return "to rejoin under a new server id and get the data from the other replicas, run: " +
		command + " --auto-rejoin"
}
