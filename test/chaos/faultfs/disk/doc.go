// Package disk is a file system in memory that knows what of it would survive if
// the power went now.
//
// What it is for: every change is an Op. What was written to a file is durable
// once the file was synced, and a name in a directory once the directory was; until
// then a power cut keeps it, drops it, or, of a write, keeps some sectors of 512
// bytes, each independently of all others. That is all that POSIX promises and
// less than most file systems do, so that what survives here survives anywhere.
//
//	live    what a program sees: all that was done
//	durable what was synced
//	cut     durable, and of the pending changes in their order some, as a seed decides
//
// A Disk can record its operations, so that the same history can be cut at each
// of its points (Replay).
//
// What it does not do: it has no links, no owners and no times but that of the
// last change, and serves nobody: package mount hands it to the kernel.
package disk
