package backup

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"
)

// magic starts a file. Its last byte is the version of the format.
const magic = "dtaskbk1"

type frameKind byte

const (
	frameManifest frameKind = iota + 1
	frameState
	frameJob
	frameEnd
)

const (
	frameHead = 1 + 4 // kind and length
	frameTail = 4     // checksum
	// maxFrame is the longest contents of a frame, in bytes. It limits what a damaged
	// length can allocate.
	maxFrame = 1 << 20
	// stateFrame is the length of the frames of the state, except for the last one.
	stateFrame = 256 << 10
	chunkHead  = 8 + 8 + 4 + 4
	endLen     = 8 + 8 + sha256.Size
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Errors of a Reader.
var (
	// ErrNotBackup is returned for a file that does not start like a backup, or that has
	// another version of the format.
	ErrNotBackup = errors.New("not a backup of this format")
	// ErrTruncated is returned for a file that ends before its end frame.
	ErrTruncated = errors.New("backup is incomplete")
	// ErrDamaged is returned for a file that differs from what was written.
	ErrDamaged = errors.New("backup is damaged")
)

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// Manifest describes a backup. Its JSON form is part of the format: fields are only
// added.
type Manifest struct {
	ClusterID string    `json:"cluster_id"`
	ServerID  string    `json:"server_id"` // of the coordinator that wrote it
	CreatedAt time.Time `json:"created_at"`
	Version   string    `json:"version"` // of the build that wrote it
	Index     uint64    `json:"index"`   // the last log entry in the state
	Term      uint64    `json:"term"`    // of the last leader in the state
	Epoch     uint64    `json:"epoch"`   // the cluster's fencing epoch
	Level     uint32    `json:"level"`   // the cluster's feature level
	Members   []Member  `json:"members"`
	Trust     [][]byte  `json:"trust"`   // certificates of the CA in the state, DER
	History   bool      `json:"history"` // finished jobs that have left the state are included
	// HistoryAfter is the log index after which these jobs left the state; 0 = all of them.
	HistoryAfter uint64 `json:"history_after,omitempty"`
	// HistoryTo is, of a state in a Set, the log index up to which segments have jobs.
	HistoryTo uint64 `json:"history_to,omitempty"`
}

// Member is a member of the cluster that was backed up.
type Member struct {
	ID      string `json:"id"`
	Address string `json:"address"` // HOST:PORT
	Voter   bool   `json:"voter"`
}

// Chunk is a chunk of a finished job, as the history stores it. The chunks of a job come
// before its head.
type Chunk struct {
	Index  uint64 // of the log entry with which the job left the state
	Job    uint64
	Number uint32 // from 1; 0 = the head, or the whole record
	Total  uint32 // with the head: number of the other chunks
	Data   []byte
}

func (c *Chunk) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, c.Index)
	b = binary.LittleEndian.AppendUint64(b, c.Job)
	b = binary.LittleEndian.AppendUint32(b, c.Number)
	b = binary.LittleEndian.AppendUint32(b, c.Total)
	return append(b, c.Data...)
}

func parseChunk(b []byte) (Chunk, error) {
	if len(b) < chunkHead {
		return Chunk{}, damaged("a chunk of the history has %d bytes", len(b))
	}
	return Chunk{
		Index: binary.LittleEndian.Uint64(b), Job: binary.LittleEndian.Uint64(b[8:]),
		Number: binary.LittleEndian.Uint32(b[16:]), Total: binary.LittleEndian.Uint32(b[20:]), Data: b[chunkHead:],
	}, nil
}

// Totals are what a complete backup has.
type Totals struct {
	Bytes      uint64            `json:"bytes"` // of the file
	StateBytes uint64            `json:"state_bytes"`
	Jobs       uint64            `json:"history_jobs"`
	SHA256     [sha256.Size]byte `json:"-"` // of all bytes before the end frame
	Whole      [sha256.Size]byte `json:"-"` // SHA-256 of all bytes, decrypted; set by Reader
}
