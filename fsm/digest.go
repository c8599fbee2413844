package fsm

import (
	"hash/crc64"
	"math/bits"
)

// The digest is a running hash of the effects of all entries. Replicas that
// applied the same entries to the same state have the same digest. If the
// states differ by a bit, the digests differ from the first write to it on,
// because old and new contents are both hashed.

// digester counts the entries and keeps their digest.
type digester struct {
	entries uint64 // applied so far
	digest  uint64 // over the effects of all of them
}

// mix adds a word to the digest: xor, multiplication by the 64-bit fraction
// of the golden ratio (as in Fibonacci hashing; Knuth, TAOCP 3, §6.4),
// rotation.
func (d *digester) mix(v uint64) {
	d.digest = bits.RotateLeft64((d.digest^v)*0x9e3779b97f4a7c15, 29)
}

var ecma = crc64.MakeTable(crc64.ECMA)

func (d *digester) mixBytes(b []byte)  { d.mix(crc64.Checksum(b, ecma)) }
func (d *digester) mixString(v string) { d.mixBytes([]byte(v)) }

func (d *digester) mixRecord(r *record) {
	d.mix(uint64(r.started)) //nolint:gosec // bits only
	d.mix(uint64(r.ended))   //nolint:gosec // bits only
	d.mix(uint64(r.attempt)<<32 | uint64(r.worker))
	d.mix(uint64(r.pending)<<32 | uint64(r.failures))
	flags := uint64(r.losses)
	if r.marks.startLogged() {
		flags |= 1 << 8
	}
	flags |= uint64(r.marks.alternative()) << 16
	flags |= uint64(r.cause) << 9
	d.mix(uint64(r.note)<<32 | flags<<8 | uint64(r.state))
}

func (d *digester) mixJob(j *job) {
	d.mix(uint64(j.id))
	d.mix(uint64(j.state))
	for _, n := range j.counts {
		d.mix(uint64(n))
	}
	stopping := uint64(0)
	if j.stopping {
		stopping = 1
	}
	for _, n := range j.cleanupCounts {
		d.mix(uint64(n))
	}
	d.mix(uint64(j.ordinary)<<8 | uint64(j.outcome))
	d.mix(uint64(j.total)<<1 | stopping)
	d.mix(uint64(j.submitted))                       //nolint:gosec // bits only
	d.mix(uint64(j.started))                         //nolint:gosec // bits only
	d.mix(uint64(j.ended))                           //nolint:gosec // bits only
	d.mix(uint64(j.revived))                         //nolint:gosec // bits only
	d.mix(uint64(j.version)<<8 | uint64(j.priority)) //nolint:gosec // bits only
	d.mix(j.retries)
	d.mix(j.requeues)
	d.mixString(j.err)
	d.mixBytes(j.digest[:])
	if j.gate != 0 { // jobs of earlier builds have none
		d.mix(uint64(j.gate))
	}
}

func (d *digester) mixKey(name string, k key) {
	d.mixString(name)
	d.mix(uint64(k.job))
	d.mix(uint64(k.version)<<32 | uint64(k.purged))
	d.mix(uint64(k.expires)) //nolint:gosec // bits only
	d.mixBytes(k.digest[:])
}

func (d *digester) mixWorker(w *Worker) {
	var e encoder
	w.fields(&coder{e: &e})
	d.mixBytes(e.b)
}

// Digest is the running digest after the entries applied so far.
func (d *digester) Digest() uint64 { return d.digest }

// Entries is the number of entries applied so far.
func (d *digester) Entries() uint64 { return d.entries }
