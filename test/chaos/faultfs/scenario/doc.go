// Package scenario tests what disk faults do to a cluster of real processes: each
// test puts every coordinator on a disk of package faultfs, keeps submitting jobs,
// breaks disks, and checks everything acknowledged against the ledger that the
// commands wrote (package ledger) and the digests of the replicas.
//
// There is a test for each kind of fault from F38 to F51. TestPowerCuts and
// TestBitFlips are meant for long runs and add their figures to the record (package
// record). DTASK_POWERCUTS and DTASK_BITFLIPS set their number, DTASK_CHAOS_SEED the
// seed. Without them they are short. All tests skip where disks cannot be mounted.
package scenario
