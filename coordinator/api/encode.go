package api

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxChunk bounds the encoded tasks of one chunk, in bytes, so that several fit
// into a log entry; a single larger task has a chunk of its own.
const maxChunk = 64 << 10

// deterministic makes the same bytes of the same message: the digest of a job
// must not depend on the order of a map.
var deterministic = proto.MarshalOptions{Deterministic: true}

// jobEncoder makes a Submission of the messages of an upload. How they are cut
// makes no difference to what comes out.
type jobEncoder struct {
	s       sequencer.Submission
	count   uint32 // tasks so far
	builder *fsm.ChunkBuilder
	digest  hash.Hash
	scratch []byte
}

// begin takes the key and the header as it was sent.
func (e *jobEncoder) begin(m *dtaskv1.SubmitRequest) error {
	e.s = sequencer.Submission{Key: m.GetIdempotencyKey(), Generated: m.GetGeneratedKey(), Total: m.GetTotal()}
	e.builder, e.digest = fsm.NewChunkBuilder(0), sha256.New()
	sent, err := deterministic.Marshal(m.GetHeader())
	if err != nil {
		return fmt.Errorf("encoding header: %w", err)
	}
	e.hashBytes(sent)
	e.flush()
	return nil
}

// header takes the header as it is stored.
func (e *jobEncoder) header(h *dtaskv1.JobHeader) error {
	encoded, err := deterministic.Marshal(h)
	if err != nil {
		return fmt.Errorf("encoding header: %w", err)
	}
	e.s.Header = encoded
	return nil
}

// add takes the next task, which has been checked.
func (e *jobEncoder) add(t *dtaskv1.TaskSpec) error {
	body, err := deterministic.Marshal(t.GetBody())
	if err != nil {
		return fmt.Errorf("encoding task %d: %w", e.count, err)
	}
	e.hashBytes([]byte(t.GetId()))
	e.hashNumber(uint64(t.GetPolicy()))
	e.hashNumber(uint64(len(t.GetDependencies())))
	for _, dep := range t.GetDependencies() {
		e.hashNumber(uint64(dep))
	}
	e.hashBytes(body)
	e.flush()

	most := len(t.GetId()) + len(body) + (len(t.GetDependencies())+4)*binary.MaxVarintLen32
	if e.builder.Len() > 0 && e.builder.Size()+most > maxChunk {
		e.closeChunk()
	}
	e.builder.Add(t.GetId(), t.GetPolicy(), t.GetDependencies(), body)
	e.count++
	return nil
}

func (e *jobEncoder) closeChunk() {
	if e.builder.Len() == 0 {
		return
	}
	c := e.builder.Chunk()
	e.s.Sum = c.Sum(e.s.Sum)
	e.s.Chunks = append(e.s.Chunks, c)
	e.builder = fsm.NewChunkBuilder(e.count)
}

// finish gives the submission.
func (e *jobEncoder) finish() sequencer.Submission {
	e.closeChunk()
	copy(e.s.Digest[:], e.digest.Sum(nil))
	return e.s
}

// Lengths go in front, so that two jobs never hash the same bytes.
func (e *jobEncoder) hashBytes(b []byte) {
	e.hashNumber(uint64(len(b)))
	e.scratch = append(e.scratch, b...)
}

func (e *jobEncoder) hashNumber(n uint64) { e.scratch = binary.AppendUvarint(e.scratch, n) }

func (e *jobEncoder) flush() {
	_, _ = e.digest.Write(e.scratch) // never fails
	e.scratch = e.scratch[:0]
}

// seal ends the upload: all messages were received.
func (u *upload) seal() (sequencer.Submission, error) {
	if !u.begun {
		return sequencer.Submission{}, invalid("header: is missing; send it in the first message")
	}
	if faults := u.checker.Seal(); faults != nil {
		return sequencer.Submission{}, faults
	}
	return u.encoder.finish(), nil
}
