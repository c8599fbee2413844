// Package faultfs gives a program of a test a disk that breaks on request: it
// hangs, is slow, fails once, runs full, becomes read-only, loses a bit, or loses
// at a power cut what was not synced. Each disk is served by a process of its own
// (command faultfsd, packages mount and disk), so that a test may use it, and so
// that what hangs is never the test.
//
//	d, err := faultfs.New(ctx, program, directory)   // mounted and empty
//	stall, err := d.Hang(faultfs.Sync, "raft.db") // every fsync of raft.db waits
//	err = stall.Lift()                            // and continues
//	err = d.PowerOff()                            // nothing more reaches the disk
//	loss, err := d.PowerOn(seed)                  // after its users were killed
//
// It needs Linux, /dev/fuse and root; Available says what is missing.
package faultfs
