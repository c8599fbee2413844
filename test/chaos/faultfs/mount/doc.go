// Package mount connects a disk in memory (package disk) to the kernel by FUSE and
// injects faults by rules: operations that hang, are slow or fail, a full disk, a
// read-only disk, and power cuts.
//
// The kernel caches files, and programs may map them. The serving process must not
// use the mount itself: a page fault would wait for itself. Command faultfsd is that
// process; package faultfs controls it.
//
// It requires Linux, /dev/fuse, and permission to mount.
package mount
