package disk

import (
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"
)

// block is the unit of allocation, in bytes.
const block = 4096

// Disk is a file system in memory. Safe for concurrent use.
type Disk struct {
	mu      sync.Mutex // guards all below
	nodes   map[ID]*node
	next    ID
	changes uint64   // number of the last change
	names   []change // changes of names that are not durable, in order
	used    int64    // bytes in written blocks
	record  bool
	history []Op
}

// node is a file or a directory.
type node struct {
	folder  bool
	name    string // the last one; rules match it
	changed time.Time

	entries        map[string]ID // of a directory
	durableEntries map[string]ID

	live, durable []byte // of a file
	written       map[int64]bool
	pending       []write // not durable, in order
	recent        []span  // the last writes, newest last
}

// span is the range of a write.
type span struct{ offset, length int64 }

// recentWrites is the number of writes per file that TearLast can choose from.
const recentWrites = 16

// write is a write to a file, or with data == nil a change of its length.
type write struct {
	number uint64
	offset int64
	data   []byte
}

// change is an atomic change of names.
type change struct {
	number uint64
	sets   []entry
}

// entry is a name and its file after a change; 0 = removed.
type entry struct {
	dir  ID
	name string
	id   ID
}

// New returns an empty disk.
func New() *Disk {
	return &Disk{nodes: map[ID]*node{Root: newDirectory("")}, next: Root + 1}
}

func newDirectory(name string) *node {
	return &node{folder: true, name: name, changed: time.Now(), entries: map[string]ID{}, durableEntries: map[string]ID{}}
}

// Record starts or stops recording operations.
func (d *Disk) Record(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.record = on
}

// History returns the recorded operations.
func (d *Disk) History() []Op {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.history)
}

// Replay returns a disk on which the operations were executed.
func Replay(ops []Op) *Disk {
	d := New()
	for _, op := range ops {
		_, _ = d.Apply(op) // an operation that failed when it was recorded fails again
	}
	return d
}

// Apply executes an operation and returns the id that it created or changed. Create
// and Mkdir with an ID of 0 choose one.
func (d *Disk) Apply(op Op) (ID, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	id, errno := d.apply(&op)
	if d.record && errno == 0 {
		d.history = append(d.history, op)
	}
	return id, errno
}

func (d *Disk) apply(op *Op) (ID, syscall.Errno) {
	switch op.Kind {
	case Create, Mkdir:
		return d.create(op)
	case Unlink, Rmdir:
		return d.remove(op)
	case Rename:
		return d.rename(op)
	case Write:
		return op.ID, d.write(op)
	case Truncate:
		return op.ID, d.truncate(op)
	case Sync:
		return op.ID, d.sync(op)
	case Mark:
		return 0, 0
	}
	return 0, syscall.EINVAL
}

// directory returns an existing directory.
func (d *Disk) directory(id ID) (*node, syscall.Errno) {
	n := d.nodes[id]
	switch {
	case n == nil:
		return nil, syscall.ENOENT
	case !n.folder:
		return nil, syscall.ENOTDIR
	}
	return n, 0
}

// file returns a file, also one without a name.
func (d *Disk) file(id ID) (*node, syscall.Errno) {
	n := d.nodes[id]
	switch {
	case n == nil:
		return nil, syscall.ENOENT
	case n.folder:
		return nil, syscall.EISDIR
	}
	return n, 0
}

func (d *Disk) create(op *Op) (ID, syscall.Errno) {
	dir, errno := d.directory(op.Dir)
	if errno != 0 {
		return 0, errno
	}
	if _, ok := dir.entries[op.Name]; ok {
		return 0, syscall.EEXIST
	}
	if op.ID == 0 {
		op.ID = d.next
	}
	d.next = max(d.next, op.ID+1)
	if op.Kind == Mkdir {
		d.nodes[op.ID] = newDirectory(op.Name)
	} else {
		d.nodes[op.ID] = &node{name: op.Name, changed: time.Now(), written: map[int64]bool{}}
	}
	d.set(entry{op.Dir, op.Name, op.ID})
	return op.ID, 0
}

func (d *Disk) remove(op *Op) (ID, syscall.Errno) {
	dir, errno := d.directory(op.Dir)
	if errno != 0 {
		return 0, errno
	}
	id, ok := dir.entries[op.Name]
	if !ok {
		return 0, syscall.ENOENT
	}
	switch n := d.nodes[id]; {
	case op.Kind == Unlink && n.folder:
		return 0, syscall.EISDIR
	case op.Kind == Rmdir && !n.folder:
		return 0, syscall.ENOTDIR
	case op.Kind == Rmdir && len(n.entries) > 0:
		return 0, syscall.ENOTEMPTY
	case !n.folder:
		d.used -= int64(len(n.written)) * block
	}
	d.set(entry{op.Dir, op.Name, 0})
	return id, 0
}

func (d *Disk) rename(op *Op) (ID, syscall.Errno) {
	from, errno := d.directory(op.Dir)
	if errno != 0 {
		return 0, errno
	}
	to, errno := d.directory(op.ToDir)
	if errno != 0 {
		return 0, errno
	}
	id, ok := from.entries[op.Name]
	if !ok {
		return 0, syscall.ENOENT
	}
	if old, ok := to.entries[op.ToName]; ok && old != id {
		switch o := d.nodes[old]; {
		case o.folder && len(o.entries) > 0:
			return 0, syscall.ENOTEMPTY
		case !o.folder:
			d.used -= int64(len(o.written)) * block
		}
	}
	d.nodes[id].name = op.ToName
	d.set(entry{op.Dir, op.Name, 0}, entry{op.ToDir, op.ToName, id})
	return id, 0
}

// set changes live names, and keeps the change until it is durable.
func (d *Disk) set(sets ...entry) {
	d.changes++
	d.names = append(d.names, change{number: d.changes, sets: sets})
	for _, s := range sets {
		dir := d.nodes[s.dir]
		dir.changed = time.Now()
		if s.id == 0 {
			delete(dir.entries, s.name)
		} else {
			dir.entries[s.name] = s.id
		}
	}
}

func (d *Disk) write(op *Op) syscall.Errno {
	n, errno := d.file(op.ID)
	if errno != 0 {
		return errno
	}
	d.changes++
	op.Data = slices.Clone(op.Data) // the caller reuses its memory
	n.changed = time.Now()
	n.live = put(n.live, op.Offset, op.Data)
	d.used += block * n.touch(op.Offset, int64(len(op.Data)))
	n.pending = append(n.pending, write{number: d.changes, offset: op.Offset, data: op.Data})
	n.recent = append(n.recent[max(0, len(n.recent)-recentWrites+1):], span{op.Offset, int64(len(op.Data))})
	return 0
}

// touch marks the blocks of a write as used and returns the number of new ones.
func (n *node) touch(offset, length int64) (fresh int64) {
	for b := offset / block; b*block < offset+length; b++ {
		if !n.written[b] {
			n.written[b] = true
			fresh++
		}
	}
	return fresh
}

func (d *Disk) truncate(op *Op) syscall.Errno {
	n, errno := d.file(op.ID)
	if errno != 0 {
		return errno
	}
	d.changes++
	n.changed = time.Now()
	n.live = resize(n.live, op.Offset)
	for b := range n.written {
		if b*block >= op.Offset {
			delete(n.written, b)
			d.used -= block
		}
	}
	n.pending = append(n.pending, write{number: d.changes, offset: op.Offset})
	return 0
}

func put(content []byte, offset int64, data []byte) []byte {
	if end := offset + int64(len(data)); int64(len(content)) < end {
		content = resize(content, end)
	}
	copy(content[offset:], data)
	return content
}

// resize returns content with a length. Bytes beyond the old end read as zero if the
// content grows again.
func resize(content []byte, length int64) []byte {
	if length <= int64(len(content)) {
		clear(content[length:])
		return content[:length]
	}
	return append(content, make([]byte, length-int64(len(content)))...)
}

// apply applies a write to some content.
func (w *write) apply(content []byte) []byte {
	if w.data == nil {
		return resize(content, w.offset)
	}
	return put(content, w.offset, w.data)
}

// LastChange is the number of the last change: a sync that begins now makes all up
// to it durable.
func (d *Disk) LastChange() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changes
}

func (d *Disk) sync(op *Op) syscall.Errno {
	n := d.nodes[op.ID]
	if n == nil {
		return syscall.ENOENT
	}
	if !n.folder {
		n.pending = slices.DeleteFunc(n.pending, func(w write) bool {
			if w.number > op.UpTo {
				return false
			}
			n.durable = w.apply(n.durable)
			return true
		})
		return 0
	}
	d.names = slices.DeleteFunc(d.names, func(c change) bool {
		if c.number > op.UpTo || !slices.ContainsFunc(c.sets, func(e entry) bool { return e.dir == op.ID }) {
			return false
		}
		d.commit(c)
		return true
	})
	if len(d.names) == 0 {
		d.sweep()
	}
	return 0
}

// commit makes a change of names durable.
func (d *Disk) commit(c change) {
	for _, e := range c.sets {
		dir := d.nodes[e.dir]
		if dir == nil {
			continue // its directory was lost
		}
		if e.id == 0 {
			delete(dir.durableEntries, e.name)
		} else {
			dir.durableEntries[e.name] = e.id
		}
	}
}

// sweep frees the contents of files without a live or durable name. The node stays:
// a program may have it open.
func (d *Disk) sweep() {
	named := map[ID]bool{Root: true}
	for _, n := range d.nodes {
		for _, id := range n.entries {
			named[id] = true
		}
		for _, id := range n.durableEntries {
			named[id] = true
		}
	}
	for id, n := range d.nodes {
		if !named[id] && !n.folder {
			n.durable, n.pending = nil, nil
		}
	}
}

// Save returns an independent copy of the disk, as if all of it had been synced.
func (d *Disk) Save() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	saved := &Disk{nodes: make(map[ID]*node), next: d.next, used: d.used}
	for id, n := range d.nodes {
		saved.nodes[id] = n.settled(n.entries, n.live)
	}
	saved.prune()
	return saved
}

// settled returns a copy of a node with durable content.
func (n *node) settled(entries map[string]ID, content []byte) *node {
	c := &node{folder: n.folder, name: n.name, changed: n.changed}
	if n.folder {
		c.entries, c.durableEntries = maps.Clone(entries), maps.Clone(entries)
		return c
	}
	c.live, c.durable = slices.Clone(content), slices.Clone(content)
	c.written, c.recent = map[int64]bool{}, slices.Clone(n.recent)
	c.touch(0, int64(len(content)))
	return c
}

// Load replaces the contents of the disk by saved ones.
func (d *Disk) Load(saved *Disk) {
	fresh := saved.Save()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nodes, d.next, d.used, d.names = fresh.nodes, max(d.next, fresh.next), fresh.used, nil
}

// prune removes unreachable nodes and counts the used blocks.
func (d *Disk) prune() {
	reached := make(map[ID]bool)
	d.used = 0
	var visit func(ID)
	visit = func(id ID) {
		n := d.nodes[id]
		if n == nil || reached[id] {
			return
		}
		reached[id] = true
		d.used += int64(len(n.written)) * block
		for name, child := range n.entries {
			if d.nodes[child] == nil {
				delete(n.entries, name)
				delete(n.durableEntries, name)
				continue
			}
			visit(child)
		}
	}
	visit(Root)
	maps.DeleteFunc(d.nodes, func(id ID, _ *node) bool { return !reached[id] })
}
