package faultfs

import (
	"syscall"
	"time"

	"github.com/dtask/dtask/test/chaos/faultfs/disk"
	"github.com/dtask/dtask/test/chaos/faultfs/mount"
)

// A Rule says what goes wrong, and with what; see mount.Rule.
type Rule = mount.Rule

// Loss is what a power cut did.
type Loss = disk.Loss

// A Fault is a rule that holds on a disk until it is lifted or used up.
type Fault struct {
	disk *Disk
	id   int
}

// Add lets something go wrong from now on.
func (d *Disk) Add(r Rule) (*Fault, error) {
	a, err := d.ask(mount.Request{Do: mount.AddRule, Rule: r})
	return &Fault{disk: d, id: a.Rule.ID}, err
}

// Hang lets operations on files of a name (a pattern; "" is any) wait until the
// fault is lifted.
func (d *Disk) Hang(op mount.Op, name string) (*Fault, error) {
	return d.Add(Rule{Ops: []mount.Op{op}, Name: name, Hang: true})
}

// HangOnce lets the next such operation take so long.
func (d *Disk) HangOnce(op mount.Op, name string, length time.Duration) (*Fault, error) {
	return d.Add(Rule{Ops: []mount.Op{op}, Name: name, Delay: length, Times: 1})
}

// Slow lets each such operation take longer.
func (d *Disk) Slow(op mount.Op, name string, each time.Duration) (*Fault, error) {
	return d.Add(Rule{Ops: []mount.Op{op}, Name: name, Delay: each})
}

// FailOnce lets the next such operation fail. The kernel repeats a read that
// failed: to make reading fail, Add a rule and lift it.
func (d *Disk) FailOnce(op mount.Op, name string, errno syscall.Errno) (*Fault, error) {
	return d.Add(Rule{Ops: []mount.Op{op}, Name: name, Errno: errno, Times: 1})
}

// ReadOnly lets every change fail, as after a kernel has remounted a file system
// that it no longer trusts.
func (d *Disk) ReadOnly() (*Fault, error) { return d.Add(Rule{Errno: syscall.EROFS}) }

// Lift removes the fault: what hangs because of it continues.
func (f *Fault) Lift() error {
	return f.disk.do(mount.Request{Do: mount.RemoveRule, Rule: Rule{ID: f.id}})
}

// Now is the rule with its counts, also of a fault that was lifted.
func (f *Fault) Now() (Rule, error) {
	a, err := f.disk.ask(mount.Request{Do: mount.FindRule, Rule: Rule{ID: f.id}})
	return a.Rule, err
}

// Heal removes every rule.
func (d *Disk) Heal() error { return d.do(mount.Request{Do: mount.RemoveRule}) }

// Room leaves so many bytes free: what needs more fails with ENOSPC. If hidden,
// statfs reports plenty of free space. A large number
// brings the room back.
func (d *Disk) Room(bytes int64, hidden bool) error {
	return d.do(mount.Request{Do: mount.SetRoom, Number: bytes, Hide: hidden})
}

// Plenty is more room than a disk has.
const Plenty = 1 << 50

// PowerOff lets everything fail from now on: nothing more reaches the disk. All
// rules end, and what hangs fails.
func (d *Disk) PowerOff() error { return d.do(mount.Request{Do: mount.PowerOff}) }

// PowerOn leaves on the disk what survived a power cut, as seed decides, and
// mounts it again. Its users must be dead.
func (d *Disk) PowerOn(seed uint64) (Loss, error) {
	a, err := d.ask(mount.Request{Do: mount.PowerOn, Seed: seed})
	return a.Loss, err
}

// Flip flips a bit of a file; below 0: one that seed chooses. It returns which.
// The file may be in use.
func (d *Disk) Flip(path string, bit int64, seed uint64) (int64, error) {
	a, err := d.ask(mount.Request{Do: mount.Flip, Path: path, Number: bit, Seed: seed})
	return a.Number, err
}

// TearLast tears the last write to a file at an offset or behind it: its end
// became zeros. It returns where they begin.
func (d *Disk) TearLast(path string, behind int64, seed uint64) (from int64, err error) {
	a, err := d.ask(mount.Request{Do: mount.Tear, Path: path, Number: behind, Seed: seed})
	return a.Number, err
}

// Save keeps what the disk holds under a name, for Load.
func (d *Disk) Save(name string) error { return d.do(mount.Request{Do: mount.Save, Path: name}) }

// Load brings back what was saved, as an old copy of the whole disk. Nobody may
// be using it.
func (d *Disk) Load(name string) error { return d.do(mount.Request{Do: mount.Load, Path: name}) }

// Export copies all to a directory of another disk.
func (d *Disk) Export(to string) error { return d.do(mount.Request{Do: mount.Export, Path: to}) }

// Files lists all files by their paths.
func (d *Disk) Files() ([]string, error) {
	a, err := d.ask(mount.Request{Do: mount.Files})
	return a.Names, err
}

// Counts is how often each kind of operation was asked for so far.
func (d *Disk) Counts() (map[mount.Op]int, error) {
	a, err := d.ask(mount.Request{Do: mount.Count})
	return a.Counts, err
}

// Used is how many bytes are used.
func (d *Disk) Used() (int64, error) {
	a, err := d.ask(mount.Request{Do: mount.Count})
	return a.Number, err
}

// Record begins to record all that is done to the disk, which must be empty.
func (d *Disk) Record() error { return d.do(mount.Request{Do: mount.Record, Number: 1}) }

// Mark notes in the record what the program has reached.
func (d *Disk) Mark(what string) error { return d.do(mount.Request{Do: mount.MarkPoint, Path: what}) }

// History writes the record to a file, for disk.ReadOps.
func (d *Disk) History(to string) error { return d.do(mount.Request{Do: mount.History, Path: to}) }
