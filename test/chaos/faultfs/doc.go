// Package faultfs gives a test program a disk that breaks on request: it hangs, is
// slow, fails once, runs full, becomes read-only, loses a bit, or loses unsynced
// data in a power cut. Each disk is served by a process of its own (command
// faultfsd, packages mount and disk), so that a test can use it, and so that a
// hanging operation never blocks the test.
//
//	d, err := faultfs.New(ctx, program, directory)   // mounted and empty
//	stall, err := d.Hang(faultfs.Sync, "raft.db")    // every fsync of raft.db waits
//	err = stall.Lift()                               // and continues
//	err = d.PowerOff()                               // no write reaches the disk
//	loss, err := d.PowerOn(seed)                     // after its users were killed
//
// It requires Linux, /dev/fuse and root; Available reports what is missing.
package faultfs
