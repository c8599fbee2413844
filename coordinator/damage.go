package coordinator

import (
	"errors"
	"fmt"
	"time"

	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/raftnode"
)

// startError is why a folder could not be opened: at that time nothing has been served
// from it, and nothing of this process uses it any more.
type startError struct{ err error }

// Error implements error.
func (e *startError) Error() string { return e.err.Error() }

// Unwrap gives the cause.
func (e *startError) Unwrap() error { return e.err }

// examine looks at the folder before anything runs on it.
func (r *replica) examine() (err error) {
	if r.folder, err = raftnode.Inspect(r.cfg.DataDir, r.cfg.LogStore); err != nil {
		return err
	}
	r.stored, r.lastStored = r.folder.HasState, r.folder.Last
	if r.identity.Get().Stored && !r.stored {
		return &logstore.DamageError{Path: r.cfg.DataDir, Detail: "it held raft state before, and holds none now"}
	}
	r.aside, err = raftnode.Aside(r.cfg.DataDir)
	return err
}

// damageAtStart finds out whether a life ended because its folder must not be used.
func damageAtStart(err error) (damaged bool, damage error) {
	if errors.Is(err, errOutdated) {
		return true, err
	}
	_, atStart := errors.AsType[*startError](err)
	found, damaged := errors.AsType[*logstore.DamageError](err)
	if !atStart || !damaged {
		return false, nil
	}
	return true, found
}

// fatalAtStart makes what a life ended with what Run returns.
func fatalAtStart(err error) error {
	if start, ok := errors.AsType[*startError](err); ok {
		return &FatalError{start.err}
	}
	return err
}

// setAside keeps a folder that must not be used under another name. It returns an error
// that says what to do, unless this replica is to rejoin by itself.
func setAside(cfg *Config, damage error) error {
	kept, err := raftnode.SetAside(cfg.DataDir, time.Now())
	if err != nil {
		return errors.Join(damage, err)
	}
	cfg.Logger.Error("the data folder must not be used: it is set aside", "err", damage, "data_dir", cfg.DataDir, "kept_as", kept, "auto_rejoin", cfg.AutoRejoin)
	if cfg.AutoRejoin {
		return nil
	}
	return fmt.Errorf("%w\nnothing was deleted: all of %s is kept in %s\n%s", damage, cfg.DataDir, kept, cfg.advice())
}

// advice says how a replica comes back whose folder was lost.
func (c *Config) advice() string {
	if len(c.Peers) < 2 {
		return "this cluster has no other replica: restore the folder from a copy; to begin anew, forgetting all jobs, move the damaged one elsewhere"
	}
	command := c.Command
	if command == "" {
		command = "dtaskd … (as before)"
	}
	return "to let it rejoin under a new server id and get its data from the others, run: " + command + " --auto-rejoin"
}
