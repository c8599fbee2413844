package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/array"
	"github.com/dtask/dtask/internal/columns"
	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxChunk bounds the encoded tasks of one chunk, in bytes, so that several
// fit into a log entry. A larger task has its own chunk.
const maxChunk = 64 << 10

// deterministic encodes equal messages to equal bytes: the digest of a job
// must not depend on the order of a map.
var deterministic = proto.MarshalOptions{Deterministic: true}

// jobEncoder encodes the parts of a job as a Submission, which does not depend
// on how the job was split.
type jobEncoder struct {
	s       sequencer.Submission
	tasks   uint32 // so far; the first part of an array counts all of its tasks
	next    uint32 // index of the first task of the next chunk
	builder *fsm.ChunkBuilder
	array   *fsm.Array // of which parts may follow
	part    uint32     // next part of the array
	digest  hash.Hash  // of flushed bytes; nil: none
	scratch []byte     // not hashed yet
	body    []byte     // of the current task
	sent    []byte     // encoded header as received
}

// hashAt is how many bytes are collected before they are hashed.
const hashAt = 8 << 10

// begin starts a job with its header as received. It reuses the memory of the
// previous job.
func (e *jobEncoder) begin(p *dtaskv1.JobPart) error {
	sent, err := deterministic.MarshalAppend(e.sent[:0], p.GetHeader())
	if err != nil {
		return fmt.Errorf("encoding header: %w", err)
	}
	e.sent = sent
	e.reset(p)
	return nil
}

// again is begin for a job with the header of the previous one.
func (e *jobEncoder) again(p *dtaskv1.JobPart) {
	header, queue := e.s.Header, e.s.Queue // never modified
	e.reset(p)
	e.s.Header, e.s.Queue = header, queue
}

// reset starts a job whose header is in e.sent.
func (e *jobEncoder) reset(p *dtaskv1.JobPart) {
	*e = jobEncoder{
		s:       sequencer.Submission{Key: p.GetIdempotencyKey(), Generated: p.GetGeneratedKey(), Total: p.GetTotal()},
		builder: fsm.NewChunkBuilder(0), scratch: e.scratch[:0], body: e.body, sent: e.sent,
	}
	e.hashBytes(e.sent)
	if p.GetRerunOf() != "" { // other jobs keep their digest
		e.hashBytes([]byte("rerun"))
		e.hashBytes([]byte(p.GetRerunOf()))
	}
}

// expect reserves memory for the first chunk of a job. Most jobs are small and
// have only one.
func (e *jobEncoder) expect(m *dtaskv1.TaskColumns) {
	const numbers = 6 // bytes of a task's lengths and policy
	tasks := len(m.GetIdSizes())
	size := len(m.GetIds()) + len(m.GetBodies()) + numbers*tasks + 3*len(m.GetDistances())
	if e.builder.Len() == 0 && size <= maxChunk {
		e.builder.Grow(tasks, size)
	}
}

// header sets the header with defaults filled in.
func (e *jobEncoder) header(h *dtaskv1.JobHeader) error {
	e.s.Queue = h.GetQueue()
	encoded, err := deterministic.Marshal(h)
	if err != nil {
		return fmt.Errorf("encoding header: %w", err)
	}
	e.s.Header = encoded
	return nil
}

// add adds the next task, which has been checked.
func (e *jobEncoder) add(t *dtaskv1.TaskSpec) error {
	body, err := taskbody.Append(e.body[:0], t.GetBody())
	if err != nil {
		return fmt.Errorf("encoding task %d: %w", e.tasks, err)
	}
	e.body = body // chunks copy it
	if t.GetArray() != nil {
		e.addArray(t, bytes.Clone(body))
		return nil
	}
	e.addRow(columns.Task{ID: t.GetId(), Policy: t.GetPolicy(), Dependencies: t.GetDependencies(), Conditions: t.GetConditions(), Body: body})
	return nil
}

// addRow adds the next task, which has no array and has been checked. Its body
// is as taskbody.Append writes it.
func (e *jobEncoder) addRow(t columns.Task) {
	e.array = nil
	e.hashNumber(uint64(len(t.ID)))
	e.scratch = append(e.scratch, t.ID...)
	e.hashNumber(uint64(t.Policy))
	e.hashNumber(uint64(len(t.Dependencies)))
	for _, dep := range t.Dependencies {
		e.hashNumber(uint64(dep))
	}
	conditions := fsm.Conditions(t.Conditions)
	e.hashConditions(conditions)
	e.hashBytes(t.Body)
	if len(e.scratch) >= hashAt {
		e.flush()
	}

	most := len(t.ID) + len(t.Body) + (len(t.Dependencies)+4)*binary.MaxVarintLen32 + len(conditions)
	if e.builder.Len() > 0 && e.builder.Size()+most > maxChunk {
		e.nextChunk()
	}
	e.builder.AddConditional(t.ID, t.Policy, t.Dependencies, conditions, t.Body)
	e.tasks++
	e.next++
}

// addArray adds the next array, or further items of one.
func (e *jobEncoder) addArray(t *dtaskv1.TaskSpec, body []byte) {
	e.closeChunk()
	spec := t.GetArray()
	if spec.GetPart() == 0 {
		e.beginArray(t, body)
	}
	for _, it := range spec.GetItems() {
		e.hashBytes(it)
	}
	e.flush()
	if len(spec.GetRanges()) > 0 {
		e.addChunk(fsm.NewArrayChunk(e.next, *e.array, nil))
		return
	}
	for items := spec.GetItems(); len(items) > 0; {
		n, size := 0, 0
		for n < len(items) && (n == 0 || size < maxChunk) { // whole tasks only
			for range min(int(e.array.Chunk), len(items)-n) {
				size += len(items[n]) + binary.MaxVarintLen32
				n++
			}
		}
		if e.part == 0 {
			e.addChunk(fsm.NewArrayChunk(e.next, *e.array, items[:n]))
		} else {
			e.addChunk(fsm.NewItemsChunk(e.next, e.part, e.array.Chunk, items[:n]))
		}
		items = items[n:]
	}
}

// beginArray adds the record of an array.
func (e *jobEncoder) beginArray(t *dtaskv1.TaskSpec, body []byte) {
	spec := t.GetArray()
	a := &fsm.Array{
		Name: t.GetId(), Policy: t.GetPolicy(), Deps: t.GetDependencies(), Conditions: fsm.Conditions(t.GetConditions()), Body: body, Items: uint32(array.Items(spec)), //nolint:gosec // checked before
		Chunk: uint32(array.Chunk(spec)), MaxParallel: spec.GetMaxParallel(), JSON: spec.GetJsonPayload(), //nolint:gosec // checked before
	}
	for _, r := range spec.GetRanges() {
		one := fsm.IndexRange{First: r.GetFirst(), Step: r.GetStep(), Count: uint32(array.RangeItems(r))} //nolint:gosec // checked before
		a.Ranges = append(a.Ranges, one)
		e.hashNumber(uint64(one.First))
		e.hashNumber(uint64(one.Step))
		e.hashNumber(uint64(one.Count))
	}
	json := uint64(0)
	if a.JSON {
		json = 1
	}
	for _, n := range []uint64{uint64(len(a.Ranges)), uint64(a.Items), uint64(a.Chunk), uint64(a.MaxParallel), json} {
		e.hashNumber(n)
	}
	e.hashBytes([]byte("array"))
	e.hashBytes([]byte(a.Name))
	e.hashNumber(uint64(a.Policy))
	for _, dep := range a.Deps {
		e.hashNumber(uint64(dep))
	}
	e.hashNumber(uint64(len(a.Deps)))
	e.hashConditions(a.Conditions)
	e.hashBytes(body)
	e.array, e.part = a, 0
	e.tasks += a.Tasks()
}

// addChunk adds a chunk of an array.
func (e *jobEncoder) addChunk(c *fsm.Chunk) {
	e.s.Sum = c.Sum(e.s.Sum)
	e.s.Chunks = append(e.s.Chunks, c)
	e.next += uint32(c.Len()) //nolint:gosec // ≤ total
	e.part++
	e.builder = fsm.NewChunkBuilder(e.next)
}

func (e *jobEncoder) closeChunk() {
	if e.builder.Len() == 0 {
		return
	}
	c := e.builder.Chunk()
	e.s.Sum = c.Sum(e.s.Sum)
	e.s.Chunks = append(e.s.Chunks, c)
	e.builder = fsm.NewChunkBuilder(e.next)
}

// nextChunk closes a full chunk and reserves memory for the next: as much, or
// less if fewer tasks remain. Most jobs are small, and a chunk keeps its
// memory as long as its job.
func (e *jobEncoder) nextChunk() {
	full := e.builder.Len()
	tasks := min(full, int(e.s.Total-e.next)) //nolint:gosec // ≤ 1,000,000
	e.closeChunk()
	e.builder.Grow(tasks, maxChunk*tasks/full)
}

// finish returns the submission.
func (e *jobEncoder) finish() sequencer.Submission {
	e.closeChunk()
	if e.digest == nil { // nothing was flushed
		sum := sha256.Sum256(e.scratch)
		copy(e.s.Digest[:], sum[:])
		return e.s
	}
	e.flush()
	copy(e.s.Digest[:], e.digest.Sum(nil))
	return e.s
}

// Lengths precede values, so that different jobs never hash the same bytes.
func (e *jobEncoder) hashBytes(b []byte) {
	e.hashNumber(uint64(len(b)))
	e.scratch = append(e.scratch, b...)
}

// hashConditions hashes nothing for dependencies that must all complete, so that
// their jobs keep their digest.
func (e *jobEncoder) hashConditions(list []fsm.Condition) {
	if list == nil {
		return
	}
	e.hashBytes([]byte("conditions"))
	for _, c := range list {
		e.hashNumber(uint64(c))
	}
}

func (e *jobEncoder) hashNumber(n uint64) { e.scratch = binary.AppendUvarint(e.scratch, n) }

func (e *jobEncoder) flush() {
	if e.digest == nil {
		e.digest = sha256.New()
	}
	_, _ = e.digest.Write(e.scratch) // never fails
	e.scratch = e.scratch[:0]
}
