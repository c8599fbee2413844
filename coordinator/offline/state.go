package offline

import (
	"errors"
	"io"

	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/fsm"
)

// directory is the locked data directory of a stopped replica with its stores open for
// reading.
type directory struct {
	*datadir.Held

	log *logstore.Reader
}

// open locks a directory and opens its stores. The error is a *fsm.LevelError if the
// directory is above this build's highest feature level. If the stores are damaged, the
// directory is returned with the error, and must be closed.
func open(path string) (*directory, error) {
	held, err := datadir.Hold(path)
	if err != nil {
		return nil, err
	}
	if id := held.Identity; fsm.Level(id.Level) > fsm.MaxLevel {
		level := &fsm.LevelError{Level: fsm.Level(id.Level), Max: fsm.MaxLevel, Version: id.LevelVersion}
		return nil, errors.Join(level, held.Close())
	}
	d := &directory{Held: held}
	d.log, err = logstore.OpenReader(held.Path)
	return d, err
}

// Close unlocks the directory.
func (d *directory) Close() error {
	var err error
	if d.log != nil {
		err = d.log.Close()
	}
	return errors.Join(err, d.Held.Close())
}

// replay rebuilds the state up to an index, with what archives its jobs.
func (d *directory) replay(archive fsm.Archiver, upTo uint64) (*fsm.Machine, raftnode.Replayed, error) {
	machine := fsm.NewMachine()
	machine.ArchiveTo(archive)
	state := &replicated{machine: machine}
	found, err := raftnode.Replay(d.Path, d.log, state, upTo)
	if state.above != nil {
		err = state.above // nothing is damaged
	}
	return machine, found, err
}

// archived keeps the jobs that leave the state while a log is replayed.
type archived map[fsm.JobID]*fsm.ArchivedJob

// WaitForSpace implements fsm.Archiver.
func (archived) WaitForSpace() {}

// Take implements fsm.Archiver.
func (a archived) Take(_ uint64, left *fsm.ArchiveBatch) {
	for _, job := range left.Jobs {
		a[job.ID()] = job
	}
}

// Restored implements fsm.Archiver.
func (archived) Restored(uint64) {}

// replicated adapts the state machine to raftnode.
type replicated struct {
	machine *fsm.Machine
	above   *fsm.LevelError // the directory is above this build's feature level
}

// Apply implements raftnode.FSM.
func (r *replicated) Apply(index, _ uint64, data []byte) any {
	result := r.machine.Apply(index, data)
	if err, ok := result.(error); ok {
		errors.As(err, &r.above)
		return raftnode.Halt{Err: err}
	}
	return result
}

// Snapshot implements raftnode.FSM.
func (r *replicated) Snapshot() (raftnode.Snapshot, error) { return r.machine.Snapshot(), nil }

// Restore implements raftnode.FSM.
func (r *replicated) Restore(from io.Reader) (take func(), err error) {
	take, err = r.machine.PrepareRestore(from)
	errors.As(err, &r.above)
	return take, err
}
