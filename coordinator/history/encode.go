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
}

// newEncoded encodes a job whose parts are stored already. data is the whole record,
// or the head of one that has parts of partBytes in all.
func newEncoded(p Position, parts uint32, data []byte, head *fsm.Head, partBytes int, memory *arena) encoded {
	value := memory.bytes(recordHeader + len(data) + format.SumSize)
	value = storedRecord{index: p.Index, parts: parts, data: data}.append(value)
	value = format.Seal(format.JobKey(p.Job), value)
	return encoded{Position: p, value: value, entry: memory.entry(head), cost: costOf(head, len(value), partBytes)}
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
	list [][2][]byte // key and sealed value
	size int
}

func (p *parts) add(id fsm.JobID, part uint32, b []byte) {
	key := partKey(id, part)
	p.list, p.size = append(p.list, [2][]byte{key, format.Seal(key, b)}), p.size+len(b)
}

func (p *parts) store(tx *bbolt.Tx) error {
	bucket := tx.Bucket(bucketParts)
	bucket.FillPercent = fillPercent
	for _, kv := range p.list {
		if err := bucket.Put(kv[0], kv[1]); err != nil {
			return err
		}
	}
	return nil
}

// encoder encodes jobs one after the other and reuses the memory for that.
type encoder struct {
	records    fsm.RecordWriter
	head, rest []byte
}

// encode encodes a job. The parts of a long one are added to rest, and written when
// that has maxPartsBytes.
func (e *encoder) encode(q queued, memory *arena, rest *parts, f *file) (encoded, error) {
	id, partBytes := q.job.ID(), 0
	s := splitter{head: e.head[:0], rest: e.rest[:0], put: func(part uint32, b []byte) error {
		partBytes += len(b)
		if rest.add(id, part, b); rest.size < maxPartsBytes {
			return nil
		}
		err := f.update(rest.store)
		*rest = parts{}
		return err
	}}
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
	return newEncoded(Position{q.index, id}, s.n, s.head, &head, partBytes, memory), nil
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
