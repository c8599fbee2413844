// Package format has what all buckets of the history file share: the keys of jobs,
// and values with a checksum. It knows nothing of what the values mean.
package format

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/dtask/dtask/fsm"
)

// DamageError is returned when the file does not hold what was written to it. The
// caller should quarantine the file.
type DamageError struct{ Detail string }

// Error implements error.
func (e *DamageError) Error() string { return "damaged history file: " + e.Detail }

// Damaged returns a *DamageError.
func Damaged(format string, args ...any) error {
	return &DamageError{Detail: fmt.Sprintf(format, args...)}
}

const jobKeySize = 8

// JobKey returns the key of a job: keys sort like job IDs.
func JobKey(id fsm.JobID) []byte { return AppendJobKey(nil, id) }

// AppendJobKey appends the key of a job to b.
func AppendJobKey(b []byte, id fsm.JobID) []byte { return binary.BigEndian.AppendUint64(b, uint64(id)) }

// ParseJobKey parses the key of a job; ok is false if k is invalid or nil.
func ParseJobKey(k []byte) (id fsm.JobID, ok bool) {
	if len(k) != jobKeySize {
		return 0, false
	}
	return fsm.JobID(binary.BigEndian.Uint64(k)), true
}

// SumSize is the size of the checksum that Seal appends, in bytes.
const SumSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
}

// Seal appends a CRC-32C of key and value to value.
func Seal(key, value []byte) []byte { return binary.BigEndian.AppendUint32(value, sum(key, value)) }

// Open checks the checksum of a sealed value and returns the value without it, in
// the same memory. It returns a *DamageError if they don't match.
func Open(key, sealed []byte) ([]byte, error) {
	n := len(sealed) - SumSize
	if n < 0 {
		return nil, Damaged("the value of key %x has %d bytes", key, len(sealed))
	}
	if value := sealed[:n]; sum(key, value) == binary.BigEndian.Uint32(sealed[n:]) {
		return value, nil
	}
	return nil, Damaged("the value of key %x does not match its checksum", key)
}
