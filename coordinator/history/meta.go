package history

import (
	"encoding/binary"
	"errors"

	"go.etcd.io/bbolt"
)

// gap is a range of the log of which this file may lack jobs: those at places
// after From with an index of at most To.
type gap struct {
	From Place
	To   uint64
}

// meta is what the file says of itself.
type meta struct {
	through     uint64 // all that left up to this log index is in the file, but for gaps
	jobs, bytes uint64 // bytes: about what the jobs take on disk
	endedBefore int64  // ms; jobs that ended before are dropped
	gaps        []gap
}

// metaFormat is what is written. A file of the format before has no times of some jobs
// (createTimes) and is the same else; its binary does not read this one.
const metaFormat, formatBefore = 3, 2

var metaKey = []byte("meta")

func (m *meta) encode() []byte {
	b := []byte{metaFormat}
	for _, n := range []uint64{m.through, m.jobs, m.bytes, uint64(m.endedBefore), uint64(len(m.gaps))} { //nolint:gosec // bits only
		b = binary.BigEndian.AppendUint64(b, n)
	}
	for _, g := range m.gaps {
		b = append(b, orderKey(g.From)...)
		b = binary.BigEndian.AppendUint64(b, g.To)
	}
	return sealed(metaKey, b)
}

func readMeta(sealed []byte) (m meta, err error) {
	b, err := opened(metaKey, sealed)
	if err != nil {
		return m, err
	}
	const fixed, one = 1 + 5*8, 3 * 8
	if len(b) < fixed || b[0] != metaFormat && b[0] != formatBefore {
		return m, errors.New("the history file is of a format that this binary does not know: upgrade it")
	}
	n := func(i int) uint64 { return binary.BigEndian.Uint64(b[1+8*i:]) }
	m = meta{through: n(0), jobs: n(1), bytes: n(2), endedBefore: int64(n(3))} //nolint:gosec // bits only
	rest := b[fixed:]
	if uint64(len(rest)) != n(4)*one {
		return m, damaged("its list of gaps has %d bytes", len(rest))
	}
	for ; len(rest) > 0; rest = rest[one:] {
		from, _ := readOrderKey(rest[:16])
		m.gaps = append(m.gaps, gap{from, binary.BigEndian.Uint64(rest[16:])})
	}
	return m, nil
}

func loadMeta(tx *bbolt.Tx) (meta, error) {
	b := tx.Bucket(bucketMeta).Get(metaKey)
	if b == nil {
		return meta{}, nil
	}
	return readMeta(b)
}

func (m *meta) store(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put(metaKey, m.encode()) }
