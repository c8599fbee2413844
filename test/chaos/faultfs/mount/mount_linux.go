package mount

import (
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dtask/dtask/test/chaos/faultfs/disk"
)

// size is the reported size of the disk, in bytes.
const size = 16 << 30

// Mount is a disk at a mount point.
type Mount struct {
	dir   string
	disk  *disk.Disk
	rules rules
	// room is the number of bytes that may be used in total.
	room atomic.Int64
	// hideRoom makes statfs report plenty of free space.
	hideRoom atomic.Bool
	// sockets has the IDs of the files that are Unix sockets.
	sockets sync.Map

	mu     sync.Mutex // guards all below; they change at a power cut
	server *fuse.Server
	root   *node
	saved  map[string]*disk.Disk
}

// New mounts an empty disk at a directory that exists.
func New(dir string) (*Mount, error) {
	m := &Mount{dir: dir, disk: disk.New(), saved: make(map[string]*disk.Disk)}
	m.rules.seen = make(map[Op]int)
	m.room.Store(size)
	if err := m.mount(); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *Mount) mount() error {
	root := &node{mount: m, id: disk.Root}
	server, err := fs.Mount(m.dir, root, &fs.Options{
		MountOptions: fuse.MountOptions{
			DirectMountStrict: true, DisableXAttrs: true, FsName: "faultfs", Name: "faultfs", MaxBackground: 64,
		},
		RootStableAttr: &fs.StableAttr{Ino: uint64(disk.Root)},
	})
	if err != nil {
		return fmt.Errorf("mounting at %s: %w", m.dir, err)
	}
	m.server, m.root = server, root
	return nil
}

// unmount removes the disk from the file tree, also while programs use it: their
// operations fail.
func (m *Mount) unmount() error {
	if m.server == nil {
		return nil
	}
	if err := unix.Unmount(m.dir, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmounting %s: %w", m.dir, err)
	}
	m.server = nil
	return nil
}

// Close unmounts the disk. Hanging operations fail.
func (m *Mount) Close() error {
	m.rules.die()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unmount()
}

// PowerOff makes all operations fail: nothing more reaches the disk.
func (m *Mount) PowerOff() { m.rules.die() }

// PowerOn keeps what survived, removes all rules, and mounts the disk again.
// Programs that used it before get errors.
func (m *Mount) PowerOn(random *rand.Rand) (disk.Loss, error) {
	m.rules.die()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.unmount(); err != nil {
		return disk.Loss{}, err
	}
	loss := m.disk.Cut(random)
	m.rules.revive()
	return loss, m.mount()
}

// change changes the disk without the knowledge of its users, and invalidates the
// kernel's caches.
func (m *Mount) change(f func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.unmount(); err != nil {
		return err
	}
	if err := f(); err != nil {
		return fmt.Errorf("%w, %w", err, m.mount())
	}
	return m.mount()
}

// invalidate drops the cached contents of a file, so that programs that have it open
// or mapped see the change.
func (m *Mount) invalidate(name string) {
	m.mu.Lock()
	inode := m.root.EmbeddedInode()
	m.mu.Unlock()
	for part := range strings.SplitSeq(path.Clean(name), "/") {
		if inode = inode.GetChild(part); inode == nil {
			return // unknown to the kernel
		}
	}
	_ = inode.NotifyContent(0, 0) // fails if nothing is cached
}

// full reports whether a write exceeds the free space.
func (m *Mount) full(id disk.ID, offset, length int64) bool {
	return m.disk.Used()+m.disk.Needs(id, offset, length) > m.room.Load()
}

// do applies the rules to an operation and executes it.
func (m *Mount) do(op Op, name string, o disk.Op) (disk.ID, syscall.Errno) {
	if errno := m.rules.pass(op, name); errno != 0 {
		return 0, errno
	}
	return m.disk.Apply(o)
}

// sync makes the changes durable that preceded the request, after the rules let it
// pass.
func (m *Mount) sync(id disk.ID, name string) syscall.Errno {
	upTo := m.disk.LastChange()
	_, errno := m.do(OpSync, name, disk.Op{Kind: disk.Sync, ID: id, UpTo: upTo})
	return errno
}
