package fsm

import (
	"hash/crc64"
	"math/bits"
)

// The digest is a running hash of the effects of all entries. Replicas that
// applied the same entries to the same state have the same digest. If the
// states differ by a bit, the digests differ from the first write to it on,
// because old and new contents are both hashed.

// mix adds a word to the digest: xor, multiplication by the 64-bit fraction
// of the golden ratio (as in Fibonacci hashing; Knuth, TAOCP 3, §6.4),
// rotation.
func (s *State) mix(v uint64) {
	s.digest = bits.RotateLeft64((s.digest^v)*0x9e3779b97f4a7c15, 29)
}

var ecma = crc64.MakeTable(crc64.ECMA)

func (s *State) mixBytes(b []byte)  { s.mix(crc64.Checksum(b, ecma)) }
func (s *State) mixString(v string) { s.mixBytes([]byte(v)) }

func (s *State) mixRecord(r *record) {
	s.mix(uint64(r.started)) //nolint:gosec // bits only
	s.mix(uint64(r.ended))   //nolint:gosec // bits only
	s.mix(uint64(r.attempt)<<32 | uint64(r.worker))
	s.mix(uint64(r.pending)<<32 | uint64(r.failures))
	flags := uint64(r.losses)
	if r.startLogged {
		flags |= 1 << 8
	}
	if r.cancelledByUser {
		flags |= 1 << 9
	}
	s.mix(uint64(r.note)<<32 | flags<<8 | uint64(r.state))
}

func (s *State) mixJob(j *job) {
	s.mix(uint64(j.id))
	s.mix(uint64(j.state))
	for _, n := range j.counts {
		s.mix(uint64(n))
	}
	stopping := uint64(0)
	if j.stopping {
		stopping = 1
	}
	for _, n := range j.cleanupCounts {
		s.mix(uint64(n))
	}
	s.mix(uint64(j.ordinary)<<8 | uint64(j.outcome))
	s.mix(uint64(j.total)<<1 | stopping)
	s.mix(uint64(j.submitted))                       //nolint:gosec // bits only
	s.mix(uint64(j.started))                         //nolint:gosec // bits only
	s.mix(uint64(j.ended))                           //nolint:gosec // bits only
	s.mix(uint64(j.revived))                         //nolint:gosec // bits only
	s.mix(uint64(j.version)<<8 | uint64(j.priority)) //nolint:gosec // bits only
	s.mix(j.retries)
	s.mix(j.recovered)
	s.mixString(j.err)
	s.mixBytes(j.digest[:])
}

func (s *State) mixKey(name string, k key) {
	s.mixString(name)
	s.mix(uint64(k.job))
	s.mix(uint64(k.version))
	s.mix(uint64(k.expires)) //nolint:gosec // bits only
	s.mixBytes(k.digest[:])
}

func (s *State) mixWorker(w *Worker) {
	var e encoder
	w.fields(&coder{e: &e})
	s.mixBytes(e.b)
}

// Digest is the running digest after the entries applied so far.
func (s *State) Digest() uint64 { return s.digest }

// Entries is the number of entries applied so far.
func (s *State) Entries() uint64 { return s.entries }
