package history

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/coordinator/history/format"
)

// gap is a range of the log for which this file may lack jobs: those at positions
// after From with an index of at most To.
type gap struct {
	From Position
	To   uint64
}

// meta is what the file states about itself.
type meta struct {
	completeTo   uint64 // the file is complete up to this log index, except for gaps
	jobs, bytes  uint64 // bytes: what the jobs take on disk, estimated
	expireBefore int64  // ms; jobs that finished earlier are dropped
	gaps         []gap
	templates    bool // the file has, or had, records that refer to templates
}

// The format of the whole file. Files of format 4, whose records have no summaries, are read
// as well; their format changes with the next write. Files of any other format are refused.
//
// A file without templates keeps the format that builds before them can read. Runs of
// schedules exist from feature level 3 on: a cluster that may return to a build without
// templates has none.
const (
	metaFormat      = 6
	formatTemplates = 6
	formatSummaries = 5
	oldestFormat    = 4
)

func (m *meta) format() byte {
	if m.templates {
		return formatTemplates
	}
	return formatSummaries
}

var metaKey = []byte("meta")

func (m *meta) encode() []byte {
	b := []byte{m.format()}
	for _, n := range []uint64{m.completeTo, m.jobs, m.bytes, uint64(m.expireBefore), uint64(len(m.gaps))} { //nolint:gosec // bits only
		b = binary.BigEndian.AppendUint64(b, n)
	}
	for _, g := range m.gaps {
		b = g.From.appendKey(b)
		b = binary.BigEndian.AppendUint64(b, g.To)
	}
	return format.Seal(metaKey, b)
}

func readMeta(sealed []byte) (m meta, err error) {
	b, err := format.Open(metaKey, sealed)
	if err != nil {
		return m, err
	}
	const fixed, perGap = 1 + 5*8, 3 * 8
	switch {
	case len(b) > 0 && (b[0] < oldestFormat || b[0] > metaFormat):
		return m, fmt.Errorf("unsupported history format %d: this build reads formats %d to %d; start with an empty data directory", b[0], oldestFormat, metaFormat)
	case len(b) < fixed:
		return m, format.Damaged("its metadata has %d bytes", len(b))
	}
	n := func(i int) uint64 { return binary.BigEndian.Uint64(b[1+8*i:]) }
	m = meta{completeTo: n(0), jobs: n(1), bytes: n(2), expireBefore: int64(n(3)), templates: b[0] >= formatTemplates} //nolint:gosec // bits only
	rest := b[fixed:]
	if uint64(len(rest)) != n(4)*perGap {
		return m, format.Damaged("its list of gaps has %d bytes", len(rest))
	}
	for ; len(rest) > 0; rest = rest[perGap:] {
		from, _ := parsePosition(rest[:16])
		m.gaps = append(m.gaps, gap{from, binary.BigEndian.Uint64(rest[16:])})
	}
	return m, nil
}

// loadMeta reads the metadata; a new file has none yet.
func loadMeta(tx *bbolt.Tx) (meta, error) {
	bucket := tx.Bucket(bucketMeta)
	if bucket == nil {
		return meta{}, nil
	}
	b := bucket.Get(metaKey)
	if b == nil {
		return meta{}, nil
	}
	return readMeta(b)
}

func (m *meta) store(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put(metaKey, m.encode()) }
