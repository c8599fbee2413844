package logstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/hashicorp/raft"
)

// raft.Log.Extensions has one version byte and the CRC32C of the entry. The leader sets
// it before it stores the entry, and it is replicated with the entry, so every replica
// verifies what the leader wrote rather than what it received. Changing this breaks
// existing logs.
const (
	checksumVersion = 1
	checksumLen     = 1 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// entrySum returns the checksum of an entry's index, term, type and data.
func entrySum(log *raft.Log) uint32 {
	var head [17]byte
	binary.BigEndian.PutUint64(head[0:], log.Index)
	binary.BigEndian.PutUint64(head[8:], log.Term)
	head[16] = byte(log.Type)
	return crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, log.Data)
}

// seal sets the checksum of an entry.
func seal(log *raft.Log) {
	log.Extensions = make([]byte, checksumLen)
	log.Extensions[0] = checksumVersion
	binary.BigEndian.PutUint32(log.Extensions[1:], entrySum(log))
}

// Sum returns the checksum of an entry that Verify accepts.
func Sum(log *raft.Log) uint32 { return binary.BigEndian.Uint32(log.Extensions[1:]) }

// Verify returns what is wrong with an entry that must have a checksum, or "".
func Verify(log *raft.Log) (problem string) {
	switch {
	case len(log.Extensions) == 0:
		return fmt.Sprintf("entry %d of term %d has no checksum", log.Index, log.Term)
	case len(log.Extensions) != checksumLen || log.Extensions[0] != checksumVersion:
		return fmt.Sprintf("entry %d of term %d has a checksum of an unknown version", log.Index, log.Term)
	}
	want, got := binary.BigEndian.Uint32(log.Extensions[1:]), entrySum(log)
	if got != want {
		return fmt.Sprintf("entry %d of term %d: checksum %08x, want %08x", log.Index, log.Term, got, want)
	}
	return ""
}

// sealValue prepends version and checksum to a value of the stable store. The checksum
// includes the key, so a value under another key is detected too.
func sealValue(key, value []byte) []byte {
	out := make([]byte, checksumLen, checksumLen+len(value))
	out[0] = checksumVersion
	binary.BigEndian.PutUint32(out[1:], valueSum(key, value))
	return append(out, value...)
}

// openValue is the inverse of sealValue.
func openValue(key, stored []byte) (value []byte, problem string) {
	if len(stored) < checksumLen || stored[0] != checksumVersion {
		return nil, fmt.Sprintf("%s has no checksum of a known version", key)
	}
	value = stored[checksumLen:]
	want, got := binary.BigEndian.Uint32(stored[1:checksumLen]), valueSum(key, value)
	if got != want {
		return nil, fmt.Sprintf("%s: checksum %08x, want %08x", key, got, want)
	}
	return value, ""
}

func valueSum(key, value []byte) uint32 {
	sum := crc32.Update(0, castagnoli, key)
	sum = crc32.Update(sum, castagnoli, []byte{0})
	return crc32.Update(sum, castagnoli, value)
}
