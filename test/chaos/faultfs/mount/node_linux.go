package mount

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/dtask/dtask/test/chaos/faultfs/disk"
)

// node identifies a file or directory for the kernel. All its data is on the disk.
type node struct {
	fs.Inode

	mount *Mount
	id    disk.ID
}

var (
	_ fs.NodeLookuper  = (*node)(nil)
	_ fs.NodeGetattrer = (*node)(nil)
	_ fs.NodeSetattrer = (*node)(nil)
	_ fs.NodeReaddirer = (*node)(nil)
	_ fs.NodeCreater   = (*node)(nil)
	_ fs.NodeMkdirer   = (*node)(nil)
	_ fs.NodeMknoder   = (*node)(nil)
	_ fs.NodeUnlinker  = (*node)(nil)
	_ fs.NodeRmdirer   = (*node)(nil)
	_ fs.NodeRenamer   = (*node)(nil)
	_ fs.NodeOpener    = (*node)(nil)
	_ fs.NodeReader    = (*node)(nil)
	_ fs.NodeWriter    = (*node)(nil)
	_ fs.NodeFsyncer   = (*node)(nil)
	_ fs.NodeFlusher   = (*node)(nil)
	_ fs.NodeStatfser  = (*node)(nil)
)

// name is the last element of the node's path.
func (n *node) name() string {
	info, _ := n.mount.disk.Stat(n.id)
	return info.Name
}

func (m *Mount) mode(i disk.Info) uint32 {
	if i.Folder {
		return syscall.S_IFDIR | 0o700
	}
	if _, socket := m.sockets.Load(i.ID); socket {
		return syscall.S_IFSOCK | 0o600
	}
	return syscall.S_IFREG | 0o600
}

func (m *Mount) attributes(i disk.Info, out *fuse.Attr) {
	out.Ino, out.Mode, out.Nlink, out.Blksize = uint64(i.ID), m.mode(i), 1, 4096
	out.Size = uint64(i.Size) //nolint:gosec // a length
	out.Blocks = (out.Size + 511) / 512
	out.SetTimes(&i.Changed, &i.Changed, &i.Changed)
}

// child returns the kernel's node of an entry.
func (n *node) child(ctx context.Context, id disk.ID, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	info, errno := n.mount.disk.Stat(id)
	if errno != 0 {
		return nil, errno
	}
	n.mount.attributes(info, &out.Attr)
	return n.NewInode(ctx, &node{mount: n.mount, id: id}, fs.StableAttr{Mode: n.mount.mode(info) & syscall.S_IFMT, Ino: uint64(id)}), 0
}

// Lookup implements fs.NodeLookuper.
func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if errno := n.mount.rules.power(); errno != 0 {
		return nil, errno
	}
	id, errno := n.mount.disk.Lookup(n.id, name)
	if errno != 0 {
		return nil, errno
	}
	return n.child(ctx, id, out)
}

// Getattr implements fs.NodeGetattrer.
func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	info, errno := n.mount.disk.Stat(n.id)
	if errno == 0 {
		n.mount.attributes(info, &out.Attr)
	}
	return errno
}

// Setattr implements fs.NodeSetattrer. Only the length can be changed; modes and
// times are accepted and ignored.
func (n *node) Setattr(ctx context.Context, f fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if length, ok := in.GetSize(); ok {
		if errno := n.truncate(int64(length)); errno != 0 { //nolint:gosec // the kernel's own limit is below
			return errno
		}
	}
	return n.Getattr(ctx, f, out)
}

func (n *node) truncate(length int64) syscall.Errno {
	_, errno := n.mount.do(OpWrite, n.name(), disk.Op{Kind: disk.Truncate, ID: n.id, Offset: length})
	return errno
}

// Readdir implements fs.NodeReaddirer.
func (n *node) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	if errno := n.mount.rules.power(); errno != 0 {
		return nil, errno
	}
	list, errno := n.mount.disk.List(n.id)
	if errno != 0 {
		return nil, errno
	}
	var entries []fuse.DirEntry
	for _, i := range list {
		entries = append(entries, fuse.DirEntry{Name: i.Name, Ino: uint64(i.ID), Mode: n.mount.mode(i)})
	}
	return fs.NewListDirStream(entries), 0
}

// Create implements fs.NodeCreater.
func (n *node) Create(ctx context.Context, name string, flags, _ uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	id, errno := n.mount.do(OpNames, name, disk.Op{Kind: disk.Create, Dir: n.id, Name: name})
	if errno == syscall.EEXIST && flags&syscall.O_EXCL == 0 {
		id, errno = n.mount.disk.Lookup(n.id, name)
	}
	if errno != 0 {
		return nil, nil, 0, errno
	}
	child, errno := n.child(ctx, id, out)
	return child, nil, 0, errno
}

// Mkdir implements fs.NodeMkdirer.
func (n *node) Mkdir(ctx context.Context, name string, _ uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	id, errno := n.mount.do(OpNames, name, disk.Op{Kind: disk.Mkdir, Dir: n.id, Name: name})
	if errno != 0 {
		return nil, errno
	}
	return n.child(ctx, id, out)
}

// Mknod implements fs.NodeMknoder for Unix sockets. On the disk they are empty files.
func (n *node) Mknod(ctx context.Context, name string, mode, _ uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if mode&syscall.S_IFMT != syscall.S_IFSOCK {
		return nil, syscall.ENOTSUP
	}
	id, errno := n.mount.do(OpNames, name, disk.Op{Kind: disk.Create, Dir: n.id, Name: name})
	if errno != 0 {
		return nil, errno
	}
	n.mount.sockets.Store(id, nil)
	return n.child(ctx, id, out)
}

// Unlink implements fs.NodeUnlinker.
func (n *node) Unlink(_ context.Context, name string) syscall.Errno {
	_, errno := n.mount.do(OpNames, name, disk.Op{Kind: disk.Unlink, Dir: n.id, Name: name})
	return errno
}

// Rmdir implements fs.NodeRmdirer.
func (n *node) Rmdir(_ context.Context, name string) syscall.Errno {
	_, errno := n.mount.do(OpNames, name, disk.Op{Kind: disk.Rmdir, Dir: n.id, Name: name})
	return errno
}

// Rename implements fs.NodeRenamer.
func (n *node) Rename(_ context.Context, name string, to fs.InodeEmbedder, toName string, flags uint32) syscall.Errno {
	other, ok := to.(*node)
	if !ok || flags != 0 {
		return syscall.ENOTSUP
	}
	_, errno := n.mount.do(OpNames, toName, disk.Op{Kind: disk.Rename, Dir: n.id, Name: name, ToDir: other.id, ToName: toName})
	return errno
}

// Open implements fs.NodeOpener.
func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if errno := n.mount.rules.power(); errno != 0 {
		return nil, 0, errno
	}
	if flags&syscall.O_TRUNC != 0 {
		return nil, 0, n.truncate(0)
	}
	return nil, 0, 0
}

// Read implements fs.NodeReader.
func (n *node) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if errno := n.mount.rules.pass(OpRead, n.name()); errno != 0 {
		return nil, errno
	}
	length, errno := n.mount.disk.ReadAt(n.id, dest, off)
	return fuse.ReadResultData(dest[:length]), errno
}

// Write implements fs.NodeWriter.
func (n *node) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	if n.mount.full(n.id, off, int64(len(data))) {
		return 0, syscall.ENOSPC
	}
	_, errno := n.mount.do(OpWrite, n.name(), disk.Op{Kind: disk.Write, ID: n.id, Offset: off, Data: data})
	if errno != 0 {
		return 0, errno
	}
	return uint32(len(data)), 0 //nolint:gosec // the kernel writes at most 1 MiB at once
}

// Fsync implements fs.NodeFsyncer, for files and directories.
func (n *node) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	return n.mount.sync(n.id, n.name())
}

// Flush implements fs.NodeFlusher: a close, which makes nothing durable.
func (n *node) Flush(context.Context, fs.FileHandle) syscall.Errno { return 0 }

// Statfs implements fs.NodeStatfser.
func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	free := uint64(max(0, n.mount.room.Load()-n.mount.disk.Used())) //nolint:gosec // not negative
	if n.mount.hideRoom.Load() {
		free = size
	}
	out.Bsize, out.Frsize, out.NameLen = 4096, 4096, 255
	out.Blocks, out.Bfree, out.Bavail = size/4096, free/4096, free/4096
	out.Files, out.Ffree = 1<<20, 1<<20
	return 0
}
