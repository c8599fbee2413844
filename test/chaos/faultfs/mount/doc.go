// Package mount hands a disk in memory (package disk) to the kernel by FUSE, and
// lets things go wrong on the way as rules say: operations that hang, are slow, or
// fail, a disk without room, one that became read-only, and power cuts.
//
// Files are cached by the kernel and may be mapped. The process that serves must
// not be one that uses the mount: a page fault would wait for itself. Command
// faultfsd is that process and package faultfs its owner's side.
//
// It needs Linux, /dev/fuse, and the right to mount.
package mount
