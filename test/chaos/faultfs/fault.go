package faultfs

import (
	"syscall"
	"time"

	"github.com/dtask/dtask/test/chaos/faultfs/disk"
	"github.com/dtask/dtask/test/chaos/faultfs/mount"
)

// A Rule selects operations and makes them fail or wait; see mount.Rule.
type Rule = mount.Rule

// Loss counts the changes that a power cut kept and dropped.
type Loss = disk.Loss

// A Fault is a rule that is active on a disk until it is lifted or used up.
type Fault struct {
	disk *Disk
	id   int
}

// Add activates a rule.
func (d *Disk) Add(r Rule) (*Fault, error) {
	a, err := d.ask(mount.Request{Do: mount.AddRule, Rule: r})
	return &Fault{disk: d, id: a.Rule.ID}, err
}

// Hang makes operations on files whose name matches a pattern ("" = any) wait until
// the fault is lifted.
func (d *Disk) Hang(op mount.Op, name string) (*Fault, error) {
	return d.Add(Rule{Ops: []mount.Op{op}, Name: name, Hang: true})
}

// HangOnce delays the next matching operation.
func (d *Disk) HangOnce(op mount.Op, name string, length time.Duration) (*Fault, error) {
	return d.Add(Rule{Ops: []mount.Op{op}, Name: name, Delay: length, Times: 1})
}

// Slow delays each matching operation.
func (d *Disk) Slow(op mount.Op, name string, each time.Duration) (*Fault, error) {
	return d.Add(Rule{Ops: []mount.Op{op}, Name: name, Delay: each})
}

// FailOnce makes the next matching operation fail. The kernel retries a failed read:
// to make reads fail, Add a rule and lift it.
func (d *Disk) FailOnce(op mount.Op, name string, errno syscall.Errno) (*Fault, error) {
	return d.Add(Rule{Ops: []mount.Op{op}, Name: name, Errno: errno, Times: 1})
}

// ReadOnly makes every change fail, as after the kernel has remounted a damaged file
// system read-only.
func (d *Disk) ReadOnly() (*Fault, error) { return d.Add(Rule{Errno: syscall.EROFS}) }

// Lift removes the fault. Operations that hang because of it continue.
func (f *Fault) Lift() error {
	return f.disk.do(mount.Request{Do: mount.RemoveRule, Rule: Rule{ID: f.id}})
}

// Now returns the rule with its counts, also after it was lifted.
func (f *Fault) Now() (Rule, error) {
	a, err := f.disk.ask(mount.Request{Do: mount.FindRule, Rule: Rule{ID: f.id}})
	return a.Rule, err
}

// Heal removes every rule.
func (d *Disk) Heal() error { return d.do(mount.Request{Do: mount.RemoveRule}) }

// SetFree sets the number of free bytes. Operations that need more fail with ENOSPC.
// If hidden, statfs reports plenty of free space. Plenty makes the disk empty enough
// again.
func (d *Disk) SetFree(bytes int64, hidden bool) error {
	return d.do(mount.Request{Do: mount.SetFree, Number: bytes, Hide: hidden})
}

// Plenty is more free space than any test uses, in bytes.
const Plenty = 1 << 50

// PowerOff makes all operations fail: nothing more reaches the disk. All rules end,
// and hanging operations fail.
func (d *Disk) PowerOff() error { return d.do(mount.Request{Do: mount.PowerOff}) }

// PowerOn keeps what survived the power cut, chosen by seed, and mounts the disk
// again. The processes that used it must have exited.
func (d *Disk) PowerOn(seed uint64) (Loss, error) {
	a, err := d.ask(mount.Request{Do: mount.PowerOn, Seed: seed})
	return a.Loss, err
}

// Flip flips a bit of a file and returns its number. If bit is negative, seed
// chooses one. The file may be in use.
func (d *Disk) Flip(path string, bit int64, seed uint64) (int64, error) {
	a, err := d.ask(mount.Request{Do: mount.Flip, Path: path, Number: bit, Seed: seed})
	return a.Number, err
}

// TearLast tears the last write to a file at or after an offset: the end of that
// write becomes zeros. It returns the offset where they begin.
func (d *Disk) TearLast(path string, behind int64, seed uint64) (from int64, err error) {
	a, err := d.ask(mount.Request{Do: mount.Tear, Path: path, Number: behind, Seed: seed})
	return a.Number, err
}

// Save stores the contents of the disk under a name, for Load.
func (d *Disk) Save(name string) error { return d.do(mount.Request{Do: mount.Save, Path: name}) }

// Load restores saved contents, as an old copy of the whole disk. The disk must not
// be in use.
func (d *Disk) Load(name string) error { return d.do(mount.Request{Do: mount.Load, Path: name}) }

// Export copies all files to a directory on another disk.
func (d *Disk) Export(to string) error { return d.do(mount.Request{Do: mount.Export, Path: to}) }

// Files returns the paths of all files.
func (d *Disk) Files() ([]string, error) {
	a, err := d.ask(mount.Request{Do: mount.Files})
	return a.Names, err
}

// Counts returns the number of requested operations of each kind.
func (d *Disk) Counts() (map[mount.Op]int, error) {
	a, err := d.ask(mount.Request{Do: mount.Count})
	return a.Counts, err
}

// Used returns the number of used bytes.
func (d *Disk) Used() (int64, error) {
	a, err := d.ask(mount.Request{Do: mount.Count})
	return a.Number, err
}

// Record starts recording all operations on the disk, which must be empty.
func (d *Disk) Record() error { return d.do(mount.Request{Do: mount.Record, Number: 1}) }

// Mark adds a mark to the record: the point that the program has reached.
func (d *Disk) Mark(what string) error { return d.do(mount.Request{Do: mount.MarkPoint, Path: what}) }

// History writes the record to a file, for disk.ReadOps.
func (d *Disk) History(to string) error { return d.do(mount.Request{Do: mount.History, Path: to}) }
