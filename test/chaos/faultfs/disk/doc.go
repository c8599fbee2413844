// Package disk is a file system in memory that knows which of its contents survive a
// power cut.
//
// Every change is an Op. A write to a file is durable after a sync of the file, and
// a name in a directory after a sync of the directory. Until then a power cut keeps
// the change, drops it, or keeps some 512-byte sectors of a write, each
// independently of all others. POSIX promises no more and most file systems promise
// more, so that what survives here survives anywhere.
//
//	live    what a program sees: all changes
//	durable synced changes
//	cut     durable, and some of the pending changes in their order, chosen by a seed
//
// A Disk can record its operations, so that the same history can be cut at each of
// its points (Replay).
//
// It has no links and no owners, and no times but that of the last change. Package
// mount connects it to the kernel.
package disk
