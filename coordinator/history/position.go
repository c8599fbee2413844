package history

import (
	"encoding/binary"

	"github.com/dtask/dtask/coordinator/history/format"
	"github.com/dtask/dtask/fsm"
)

// The buckets of the file; template.go and package index have two more each.
var (
	bucketJobs  = []byte("jobs")  // job → record or its head, see record.go
	bucketParts = []byte("parts") // job, number → part of a long record
	bucketOrder = []byte("order") // position → size
	bucketMeta  = []byte("meta")
)

var buckets = [][]byte{bucketJobs, bucketParts, bucketOrder, bucketMeta, bucketTemplates, bucketTemplateParts}

func partKey(id fsm.JobID, part uint32) []byte {
	return binary.BigEndian.AppendUint32(format.JobKey(id), part)
}

// Position is where a job stands in the order in which jobs left the state.
type Position struct {
	Index uint64 // of the log entry
	Job   fsm.JobID
}

// lastJob is above all jobs.
const lastJob = ^fsm.JobID(0)

func (p Position) before(q Position) bool {
	return p.Index < q.Index || p.Index == q.Index && p.Job < q.Job
}

func (p Position) key() []byte { return p.appendKey(nil) }

func (p Position) appendKey(b []byte) []byte {
	return format.AppendJobKey(binary.BigEndian.AppendUint64(b, p.Index), p.Job)
}

func parsePosition(k []byte) (p Position, ok bool) {
	if len(k) != 16 {
		return Position{}, false
	}
	return Position{binary.BigEndian.Uint64(k), fsm.JobID(binary.BigEndian.Uint64(k[8:]))}, true
}
