package logs

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"slices"
	"sort"
)

// An index is the file beside a sealed segment: magic, the time of the newest record,
// the number of attempts, then for each attempt in order its name and the offset of its
// last record, then a CRC-32C of all that.
const (
	indexMagic = "dtasklx1"
	indexHead  = len(indexMagic) + 8 + 4
	indexEntry = 8 + 4 + 4 + 4
)

// encodeIndex encodes the index of a segment.
func encodeIndex(last map[Attempt]uint32, newestMS int64) []byte {
	b := make([]byte, 0, indexHead+len(last)*indexEntry+4)
	b = append(b, indexMagic...)
	b = binary.BigEndian.AppendUint64(b, uint64(newestMS))  //nolint:gosec // bits only
	b = binary.BigEndian.AppendUint32(b, uint32(len(last))) //nolint:gosec // a segment has fewer records
	for _, a := range slices.SortedFunc(maps.Keys(last), compareAttempts) {
		b = appendAttempt(b, a)
		b = binary.BigEndian.AppendUint32(b, last[a])
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// appendAttempt encodes an attempt so that encoded names compare as attempts do.
func appendAttempt(b []byte, a Attempt) []byte {
	b = binary.BigEndian.AppendUint64(b, a.Job)
	b = binary.BigEndian.AppendUint32(b, a.Index)
	return binary.BigEndian.AppendUint32(b, a.Attempt)
}

func compareAttempts(a, b Attempt) int {
	return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Index, b.Index), cmp.Compare(a.Attempt, b.Attempt))
}

// errBadIndex is returned for an index that must be made again from its segment.
var errBadIndex = errors.New("damaged index")

// checkIndex checks a whole index and returns what its head says.
func checkIndex(b []byte) (attempts int, newestMS int64, err error) {
	if len(b) < indexHead+4 || !bytes.HasPrefix(b, []byte(indexMagic)) {
		return 0, 0, errBadIndex
	}
	body := b[:len(b)-4]
	attempts = int(binary.BigEndian.Uint32(b[len(indexMagic)+8:]))
	if len(body) != indexHead+attempts*indexEntry || crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(b[len(body):]) {
		return 0, 0, errBadIndex
	}
	return attempts, int64(binary.BigEndian.Uint64(b[len(indexMagic):])), nil //nolint:gosec // bits only
}

// findInIndex returns the offset of an attempt's last record in a segment, by a binary
// search in the file of its index.
func findInIndex(path string, attempts int, a Attempt) (offset uint32, found bool, err error) {
	file, err := os.Open(path) //nolint:gosec // below the work directory
	if err != nil {
		return 0, false, fmt.Errorf("opening the index of logs: %w", err)
	}
	defer func() { _ = file.Close() }() // read only
	want := appendAttempt(nil, a)
	var entry [indexEntry]byte
	read := func(i int) []byte {
		if _, e := file.ReadAt(entry[:], int64(indexHead)+int64(i)*indexEntry); e != nil && err == nil {
			err = fmt.Errorf("reading the index of logs: %w", e)
		}
		return entry[:]
	}
	i := sort.Search(attempts, func(i int) bool { return bytes.Compare(read(i)[:len(want)], want) >= 0 })
	if err != nil || i == attempts || !bytes.Equal(read(i)[:len(want)], want) {
		return 0, false, err
	}
	return binary.BigEndian.Uint32(entry[len(want):]), true, err
}
