// Package scenario has what disks do to a cluster of real processes: each test
// puts every coordinator on a disk of package faultfs, keeps jobs coming, breaks
// disks, and has all that was acknowledged judged by the ledger that the commands
// wrote (package ledger) and by the digests of the replicas.
//
// One test for each kind of fault F38 to F51; TestPowerCuts and TestBitFlips are
// meant to be run for long and add their figures to the record (package record).
// DTASK_POWERCUTS and DTASK_BITFLIPS say how many, DTASK_CHAOS_SEED which. Without
// them they are short. All skip where disks cannot be mounted.
package scenario
