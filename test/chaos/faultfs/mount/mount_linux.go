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

// size is how large the disk says it is, in bytes.
const size = 16 << 30

// Mount is a disk at a place in the file tree.
type Mount struct {
	dir   string
	disk  *disk.Disk
	rules rules
	// room is how many bytes may be used in all.
	room atomic.Int64
	// hideRoom lets the disk say that there is much room whatever there is.
	hideRoom atomic.Bool

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

// unmount takes the disk out of the file tree, also while programs use it: for
// those it is gone.
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

// Close unmounts. What still hangs is let go, with an error.
func (m *Mount) Close() error {
	m.rules.die()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unmount()
}

// PowerOff lets everything fail from now on: nothing more reaches the disk.
func (m *Mount) PowerOff() { m.rules.die() }

// PowerOn makes of the disk what survived, without any rule, and mounts it again.
// Programs that used it before see errors.
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

// change does something to the disk behind the back of those who use it, and
// then forgets what the kernel knows.
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

// invalidate lets the kernel forget the content of a file, so that programs that
// have it open or mapped see what changed.
func (m *Mount) invalidate(name string) {
	m.mu.Lock()
	inode := m.root.EmbeddedInode()
	m.mu.Unlock()
	for part := range strings.SplitSeq(path.Clean(name), "/") {
		if inode = inode.GetChild(part); inode == nil {
			return // the kernel does not know it
		}
	}
	_ = inode.NotifyContent(0, 0) // what is not cached needs nothing
}

// full tells whether a write does not fit any more.
func (m *Mount) full(id disk.ID, offset, length int64) bool {
	return m.disk.Used()+m.disk.Needs(id, offset, length) > m.room.Load()
}

// do lets an operation pass the rules and does it.
func (m *Mount) do(op Op, name string, o disk.Op) (disk.ID, syscall.Errno) {
	if errno := m.rules.pass(op, name); errno != 0 {
		return 0, errno
	}
	return m.disk.Apply(o)
}

// sync makes durable what was done when it was asked for, once the rules let it.
func (m *Mount) sync(id disk.ID, name string) syscall.Errno {
	upTo := m.disk.LastChange()
	_, errno := m.do(OpSync, name, disk.Op{Kind: disk.Sync, ID: id, UpTo: upTo})
	return errno
}
