package history

import (
	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/coordinator/history/format"
	"github.com/dtask/dtask/coordinator/history/index"
	"github.com/dtask/dtask/fsm"
)

// maxPartsBytes bounds the parts of one transaction: syncing more would delay the
// log, which is mostly on the same disk.
const maxPartsBytes = 1 << 20

// fillPercent fills the pages of buckets that are mostly written in order.
const fillPercent = 0.9

// encoded is a job as it is written.
type encoded struct {
	Position
	value []byte // sealed
	entry index.Entry
	cost  uint64 // bytes on disk, estimated
	parts uint32 // without those of the template

	template     *templateRef // nil: the record is whole
	templateSize uint64       // bytes

	// run is the head of a run of a schedule that was received whole, and may be stored
	// apart from its template; nil for other jobs.
	run *fsm.Head
}

// newEncoded encodes a job whose parts, of partBytes in all, are stored already.
func newEncoded(p Position, s *storedRecord, head *fsm.Head, partBytes int, memory *arena) encoded {
	s.index = p.Index
	value := s.append(memory.bytes(s.size() + format.SumSize))
	value = format.Seal(format.JobKey(p.Job), value)
	return encoded{Position: p, value: value, entry: memory.entry(head), cost: costOf(head, len(value), partBytes), parts: s.parts}
}

// costOf estimates what a job takes on disk: its keys and values, its share of index
// lists, and the free part of pages. A name or a label may be unique and take a list
// of its own; states and owners are shared.
func costOf(head *fsm.Head, value, parts int) uint64 {
	const keys, element, perTerm = 8 + 16 + 4, 16, 16 + 16
	terms := 1 + len(head.Header.GetLabels())
	return uint64(value+parts+keys+2*element)*10/9 + uint64(terms*perTerm)*3/2 //nolint:gosec // not negative
}

// parts are parts of long records that are not written yet. Without their heads they
// have no effect, so that they may be written earlier; the parts of several jobs
// share a transaction.
type parts struct {
	list []partValue
	size int
}

// partValue is a part as it is stored.
type partValue struct{ bucket, key, value []byte }

func (p *parts) add(id fsm.JobID, part uint32, b []byte) { p.addTo(bucketParts, partKey(id, part), b) }

func (p *parts) addTemplate(sum *templateSum, part uint32, b []byte) {
	p.addTo(bucketTemplateParts, sum.partKey(part), b)
}

func (p *parts) addTo(bucket, key, b []byte) {
	p.list, p.size = append(p.list, partValue{bucket, key, format.Seal(key, b)}), p.size+len(b)
}

// flush stores the parts if they have maxPartsBytes.
func (p *parts) flush(f *file) error {
	if p.size < maxPartsBytes {
		return nil
	}
	err := f.update(p.store)
	*p = parts{}
	return err
}

func (p *parts) store(tx *bbolt.Tx) error {
	for _, v := range p.list {
		bucket := tx.Bucket(v.bucket)
		bucket.FillPercent = fillPercent
		if err := bucket.Put(v.key, v.value); err != nil {
			return err
		}
	}
	return nil
}

// encoder encodes jobs one after the other and reuses the memory for that.
type encoder struct {
	records    fsm.RecordWriter
	head, rest []byte
	staged     map[templateSum]bool // templates of the current batch whose parts are stored, or in its parts
}

// begin starts a batch.
func (e *encoder) begin() { e.staged = nil }

// encode encodes a job. The parts of a long one are added to rest, and written when
// that has maxPartsBytes.
func (e *encoder) encode(q queued, memory *arena, rest *parts, f *file) (encoded, error) {
	if q.job.MayShare() {
		if run, ok, err := e.encodeRun(q, memory, rest, f); ok || err != nil {
			return run, err
		}
	}
	id, partBytes := q.job.ID(), 0
	s := splitter{head: e.head[:0], cutter: cutter{rest: e.rest[:0], put: func(part uint32, b []byte) error {
		partBytes += len(b)
		rest.add(id, part, b)
		return rest.flush(f)
	}}}
	head, err := e.records.Write(q.job, &s)
	if err == nil {
		err = s.finish()
	}
	if err != nil {
		return encoded{}, err
	}
	e.rest = s.rest
	if !s.long {
		e.head = s.head
	}
	return newEncoded(Position{q.index, id}, &storedRecord{parts: s.n, data: s.head}, &head, partBytes, memory), nil
}

// arena is memory for the values and terms of one transaction, and is dropped after
// it. A nil arena allocates each.
type arena struct {
	b     []byte
	terms []index.Term
}

// entry returns the index entry of a job.
func (a *arena) entry(h *fsm.Head) index.Entry {
	if a == nil {
		return index.NewEntry(h, nil)
	}
	n := len(a.terms)
	e := index.NewEntry(h, a.terms)
	a.terms = e.Terms
	e.Terms = e.Terms[n:len(e.Terms):len(e.Terms)]
	return e
}

// bytes returns an empty slice with capacity n.
func (a *arena) bytes(n int) []byte {
	const block = 1 << 20
	if a == nil || n > block/8 {
		return make([]byte, 0, n)
	}
	if cap(a.b)-len(a.b) < n {
		a.b = make([]byte, 0, block)
	}
	at := len(a.b)
	a.b = a.b[:at+n]
	return a.b[at : at : at+n]
}
