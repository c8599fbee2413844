package fsm

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// CheckpointFormat is the format of a checkpoint's bytes. The state machine
// does not read them.
type CheckpointFormat uint8

// The formats of a checkpoint.
const (
	DirectoryCheckpoint CheckpointFormat = iota + 1 // the packed contents of a directory
	DataCheckpoint                                  // the data of a handler
	numCheckpointForms
)

// SavedCheckpoint is the saved progress of an attempt. The next attempt of
// the task starts with it. Values never change once they are in the state.
type SavedCheckpoint struct {
	Attempt uint32 // that saved it
	Number  uint32 // of the attempt's checkpoints, from 1
	Format  CheckpointFormat
	AtMS    int64
	// Data has its bytes, unless they are in a file. File is that file's path
	// below the workers' checkpoint store. Both are shared.
	Data   []byte
	File   string
	Size   int64  // bytes of it
	SHA256 []byte // of the file's contents; empty without a file
}

// checkpoints has the checkpoints of tasks that have not ended.
type checkpoints struct {
	saved cowMap[*SavedCheckpoint] // by checkpointKey
	bytes uint64                   // their costs
}

// cost is the approximate size of a checkpoint in memory, in bytes.
func (p *SavedCheckpoint) cost() uint64 {
	const fixed = 200                                                // with its key
	return uint64(fixed + len(p.Data) + len(p.File) + len(p.SHA256)) //nolint:gosec // lengths
}

// malformed reports whether the fields contradict each other or exceed their
// limits.
func (p *SavedCheckpoint) malformed() bool {
	switch {
	case p.Number == 0 || p.Format == 0 || p.Format >= numCheckpointForms:
		return true
	case p.File == "":
		return len(p.Data) > maxCheckpoint || p.Size != int64(len(p.Data)) || len(p.SHA256) > 0
	default:
		return len(p.File) > maxCheckpointFile || len(p.Data) > 0 || p.Size < 0 || len(p.SHA256) != sha256Len
	}
}

// Checkpoint saves the progress of a live attempt.
type Checkpoint struct {
	HeldAttempt
	Saved SavedCheckpoint // Attempt and AtMS are set when it is applied
}

func (*Checkpoint) kind() opKind { return 31 }

func (o *Checkpoint) fields(c *coder) {
	c.held(&o.HeldAttempt)
	o.Saved.fields(c)
	c.clone(&o.Saved.Data)
}

func (o *Checkpoint) size() int {
	return 2*fixedFields + len(o.Saved.Data) + len(o.Saved.File) + len(o.Saved.SHA256)
}

// fields codes all but the time and the data.
func (p *SavedCheckpoint) fields(c *coder) {
	number(c, &p.Attempt)
	number(c, &p.Number)
	number(c, &p.Format)
	c.str(&p.File)
	c.i64(&p.Size)
	c.clone(&p.SHA256)
}

// apply saves a checkpoint in place of the previous one.
// Rejects: as held; AlreadyAccepted if this attempt has saved this number or
// a higher one; BudgetExceeded if all checkpoints together would be too long;
// Malformed. A second copy is rejected.
func (o *Checkpoint) apply(s *State, _ *Effects) Reason {
	j, reason := s.held(o.HeldAttempt)
	if reason != Accepted {
		return reason
	}
	c := o.Saved
	c.Attempt, c.AtMS = o.Attempt, s.now
	if c.malformed() {
		return Malformed
	}
	name := checkpointKey(o.TaskRef)
	old, replaces := s.checkpoints.saved.get(name)
	left := s.checkpoints.bytes
	if replaces {
		if old.Attempt == c.Attempt && old.Number >= c.Number {
			return AlreadyAccepted
		}
		left -= old.cost()
	}
	if left+c.cost() > maxCheckpoints {
		return BudgetExceeded
	}
	if replaces {
		s.mixCheckpoint(old)
	} else {
		j.checkpoints++
	}
	s.mixString(name)
	s.mixCheckpoint(&c)
	s.checkpoints.saved.set(s.own, name, &c)
	s.checkpoints.bytes = left + c.cost()
	j.records.write(s.own, o.Index) // users see it with its task
	return Accepted
}

// dropCheckpoint removes the checkpoint of a task that has ended.
func (s *State) dropCheckpoint(j *job, i uint32) {
	name := checkpointKey(TaskRef{j.id, i})
	c, ok := s.checkpoints.saved.get(name)
	if !ok {
		return
	}
	s.mixCheckpoint(c)
	s.checkpoints.saved.delete(s.own, name)
	s.checkpoints.bytes -= c.cost()
	j.checkpoints--
}

// checkpointKey is the key of a task. Keys sort as tasks do.
func checkpointKey(t TaskRef) string {
	var b [12]byte
	binary.BigEndian.PutUint64(b[:], uint64(t.Job))
	binary.BigEndian.PutUint32(b[8:], t.Index)
	return string(b[:])
}

func checkpointTask(key string) TaskRef {
	b := []byte(key)
	return TaskRef{JobID(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint32(b[8:])}
}

// Checkpoint returns the last checkpoint of a task that has not ended. ok is
// false if there is no checkpoint.
func (s *State) Checkpoint(t TaskRef) (c SavedCheckpoint, ok bool) {
	if j := s.sealedJob(t.Job); j == nil || j.checkpoints == 0 {
		return SavedCheckpoint{}, false
	}
	saved, ok := s.checkpoints.saved.get(checkpointKey(t))
	if !ok {
		return SavedCheckpoint{}, false
	}
	return *saved, true
}

// CheckpointBytes is the approximate size of all checkpoints in memory.
func (p *checkpoints) CheckpointBytes() uint64 { return p.bytes }

func (d *digester) mixCheckpoint(c *SavedCheckpoint) {
	var e encoder
	c.fields(&coder{e: &e})
	d.mix(uint64(c.AtMS)) //nolint:gosec // bits only
	d.mixBytes(e.b)
	d.mixBytes(c.Data)
}

// snapshot codes a frame of a snapshot.
func (p *SavedCheckpoint) snapshot(c *coder, t *TaskRef) {
	c.task(t)
	p.fields(c)
	c.i64(&p.AtMS)
	c.bytes(&p.Data)
}

// checkpoints writes a frame for each checkpoint.
func (f *frameWriter) checkpoints(s *State) {
	for shard := range shardCount {
		var names []string
		for name := range s.checkpoints.saved.scan(shard) {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			c, _ := s.checkpoints.saved.get(name)
			task, saved := checkpointTask(name), *c
			saved.snapshot(&f.c, &task)
			f.frame(frameCheckpoint)
		}
	}
}

// checkpoint reads the checkpoint of a job that was read before.
func (f *frameReader) checkpoint(d *decoder) error {
	var t TaskRef
	var c SavedCheckpoint
	c.snapshot(&coder{d: d}, &t)
	if err := d.done(); err != nil {
		return err
	}
	s, name := f.s, checkpointKey(t)
	j := s.sealedJob(t.Job)
	if _, twice := s.checkpoints.saved.get(name); twice || j == nil || t.Index >= j.total {
		return fmt.Errorf("duplicate or unknown checkpoint of task %d/%d", t.Job, t.Index)
	}
	s.checkpoints.saved.set(s.own, name, &c)
	s.checkpoints.bytes += c.cost()
	j.checkpoints++
	return nil
}

// check checks the task of each checkpoint, and the totals.
func (p *checkpoints) check(jobs *jobTable) error {
	total, perJob := uint64(0), make(map[JobID]uint32)
	for shard := range shardCount {
		for name, c := range p.saved.scan(shard) {
			t := checkpointTask(name)
			j := jobs.get(t.Job)
			switch {
			case j == nil || j.state == JobUploading || t.Index >= j.total:
				return fmt.Errorf("checkpoint of unknown task %d/%d", t.Job, t.Index)
			case j.records.at(t.Index).state.Terminal():
				return fmt.Errorf("checkpoint of ended task %d/%d", t.Job, t.Index)
			case c.Attempt == 0 || c.Attempt > j.records.at(t.Index).attempt || c.malformed():
				return fmt.Errorf("malformed checkpoint of task %d/%d", t.Job, t.Index)
			}
			total += c.cost()
			perJob[t.Job]++
		}
	}
	if total != p.bytes || total > maxCheckpoints {
		return fmt.Errorf("checkpoints have %d bytes, counted %d", total, p.bytes)
	}
	for j := range jobs.all() {
		if j.checkpoints != perJob[j.id] {
			return fmt.Errorf("job %d has %d checkpoints, counted %d", j.id, perJob[j.id], j.checkpoints)
		}
	}
	return nil
}
