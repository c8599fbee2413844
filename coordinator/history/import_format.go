package history

import (
	"encoding/binary"

	"github.com/dtask/dtask/coordinator/history/format"
	"github.com/dtask/dtask/fsm"
)

// ImportSuffix is added to the name of a history file for that of its import file.
const ImportSuffix = ".import"

// An import file has jobs of a restored backup that are not in the history file yet. It is
// written once, and removed when its last job was imported. Numbers are big endian.
//
//	file:      magic, runs, directory
//	run:       the chunks of up to runJobs jobs, in the order in which the jobs left the
//	           state, then their index: ID and offset of the first chunk of each job, by ID
//	chunk:     length of the data, number, total, log index, job, data, CRC-32C of all these
//	directory: a descriptor for each run, then number of runs and jobs, last log index,
//	           magic, CRC-32C of all these
//
// A file without a valid directory is incomplete. A run is found in the directory, and a job
// in the indexes of the runs that may have it: mostly one, because jobs mostly leave in the
// order of their IDs.
const (
	importMagic = "dtaskhi1" // its last byte is the version of the format
	// runJobs is small enough to search a run by reading it.
	runJobs       = 4096
	importHead    = 4 + 4 + 4 + 8 + 8 // of a chunk
	importEntry   = 8 + 8             // of an index
	runDescriptor = 8 + 8 + 8 + 16 + 8 + 8
	importTail    = 8 + 8 + 8 + len(importMagic) + format.SumSize
	// maxImportChunk is the most that a damaged length can allocate: heads have the
	// header of a job, and parts are smaller.
	maxImportChunk = 16 << 20
)

// importRun describes a run.
type importRun struct {
	chunks, index int64 // offsets
	jobs          int
	first         Position
	low, high     fsm.JobID // of its jobs
}

func (r *importRun) append(b []byte) []byte {
	for _, n := range []uint64{uint64(r.chunks), uint64(r.index), uint64(r.jobs)} { //nolint:gosec // not negative
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = r.first.appendKey(b)
	b = format.AppendJobKey(b, r.low)
	return format.AppendJobKey(b, r.high)
}

// parseRun reads runDescriptor bytes.
func parseRun(b []byte) (r importRun) {
	n := func(i int) uint64 { return binary.BigEndian.Uint64(b[8*i:]) }
	return importRun{
		chunks: int64(n(0)), index: int64(n(1)), jobs: int(n(2)), //nolint:gosec // the checksum matches
		first: Position{n(3), fsm.JobID(n(4))}, low: fsm.JobID(n(5)), high: fsm.JobID(n(6)),
	}
}

// appendImportChunk appends a chunk as it is in the file.
func appendImportChunk(b []byte, c *Chunk) []byte {
	at := len(b)
	b = binary.BigEndian.AppendUint32(b, uint32(len(c.Data))) //nolint:gosec // ≤ maxImportChunk
	b = binary.BigEndian.AppendUint32(b, c.Number)
	b = binary.BigEndian.AppendUint32(b, c.Total)
	b = c.appendKey(b)
	b = append(b, c.Data...)
	sealed := format.Seal(nil, b[at:])
	return append(b, sealed[len(b)-at:]...)
}

// parseImportHead reads importHead bytes, the beginning of a chunk.
func parseImportHead(b []byte) (c Chunk, size int, err error) {
	n := binary.BigEndian.Uint32(b)
	if n > maxImportChunk {
		return c, 0, format.Damaged("a chunk to import has %d bytes", n)
	}
	c.Number, c.Total = binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
	c.Position, _ = parsePosition(b[12:importHead])
	return c, importHead + int(n) + format.SumSize, nil
}

// parseImportChunk reads a whole chunk, in whose memory its data stays.
func parseImportChunk(sealed []byte) (Chunk, error) {
	b, err := format.Open(nil, sealed)
	if err != nil {
		return Chunk{}, err
	}
	c, _, err := parseImportHead(b)
	c.Data = b[importHead:]
	return c, err
}
