package history

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/coordinator/history/format"
	"github.com/dtask/dtask/fsm"
)

// The runs of a schedule have the same tasks: see fsm.MinTemplate. A template is stored
// once, under its SHA-256, in parts. Its entry is there if and only if a job refers to it,
// and each of these has a reference of its own: nothing is counted that could be counted
// wrongly. Parts without an entry are those of a batch that a crash has interrupted, and
// are deleted when the file is opened.
var (
	bucketTemplates     = []byte("templates")      // sum → entry; sum, job → reference
	bucketTemplateParts = []byte("template-parts") // sum, number → part
)

type templateSum [sha256.Size]byte

// templateRef is what the record of a job has in place of its template.
type templateRef struct {
	sum    templateSum
	parts  uint32 // of the template
	before uint32 // parts of the record that precede it
}

const templateRefSize = sha256.Size + 4 + 4

func (r *templateRef) append(b []byte) []byte {
	b = append(b, r.sum[:]...)
	b = binary.BigEndian.AppendUint32(b, r.parts)
	return binary.BigEndian.AppendUint32(b, r.before)
}

// parseTemplateRef reads templateRefSize bytes.
func parseTemplateRef(b []byte) *templateRef {
	n := b[sha256.Size:]
	return &templateRef{sum: templateSum(b[:sha256.Size]), parts: binary.BigEndian.Uint32(n), before: binary.BigEndian.Uint32(n[4:])}
}

// template is an entry, which is sealed.
type template struct {
	parts uint32
	size  uint64 // bytes
}

func (t *template) seal(key []byte) []byte {
	return format.Seal(key, binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, t.parts), t.size))
}

func openTemplate(key, sealed []byte) (t template, err error) {
	b, err := format.Open(key, sealed)
	if err == nil && len(b) != 4+8 {
		err = format.Damaged("the entry of template %x has %d bytes", key, len(b))
	}
	if err != nil {
		return t, err
	}
	return template{parts: binary.BigEndian.Uint32(b), size: binary.BigEndian.Uint64(b[4:])}, nil
}

// cost estimates what a template takes on disk, like costOf.
func (t *template) cost() uint64 {
	const entry, perPart = sha256.Size + 4 + 8 + 4, sha256.Size + 4 + 4
	return (entry + t.size + uint64(t.parts)*perPart) * 10 / 9
}

func (s *templateSum) partKey(part uint32) []byte {
	return binary.BigEndian.AppendUint32(append(make([]byte, 0, len(s)+4), s[:]...), part)
}

func (s *templateSum) refKey(id fsm.JobID) []byte {
	return format.AppendJobKey(append(make([]byte, 0, len(s)+8), s[:]...), id)
}

// readTemplatePart reads a part of a template.
func readTemplatePart(tx *bbolt.Tx, sum *templateSum, part uint32) ([]byte, error) {
	key := sum.partKey(part)
	var b []byte
	if bucket := tx.Bucket(bucketTemplateParts); bucket != nil {
		b = bucket.Get(key)
	}
	if b == nil {
		return nil, format.Damaged("part %d of template %x is missing", part, sum[:])
	}
	return format.Open(key, b)
}

// hasTemplate reports whether the file has a template.
func hasTemplate(tx *bbolt.Tx, sum *templateSum) bool {
	return tx.Bucket(bucketTemplates).Get(sum[:]) != nil
}

// storeReferences stores the references of jobs, and the entries of templates whose parts
// are stored already. It precedes the removal of any job in the transaction: a template
// that these jobs need stays.
func storeReferences(tx *bbolt.Tx, m *meta, list []encoded) error {
	for i := range list {
		e := &list[i]
		if e.template == nil {
			continue
		}
		bucket, sum := tx.Bucket(bucketTemplates), e.template.sum
		if !hasTemplate(tx, &sum) {
			t := template{parts: e.template.parts, size: e.templateSize}
			if err := bucket.Put(sum[:], t.seal(sum[:])); err != nil {
				return err
			}
			m.bytes += t.cost()
			m.templates = true
		}
		key := sum.refKey(e.Job)
		if err := bucket.Put(key, format.Seal(key, nil)); err != nil {
			return err
		}
	}
	return nil
}

// removeReference removes the reference of a job, and the template with the last one.
func removeReference(tx *bbolt.Tx, m *meta, sum templateSum, id fsm.JobID) error {
	bucket, key := tx.Bucket(bucketTemplates), sum.refKey(id)
	if bucket.Get(key) == nil {
		return format.Damaged("job %d is missing among those of template %x", id, sum[:])
	}
	if err := bucket.Delete(key); err != nil {
		return err
	}
	c := bucket.Cursor()
	k, sealed := c.Seek(sum[:])
	if !bytes.Equal(k, sum[:]) {
		return format.Damaged("template %x is missing", sum[:])
	}
	if next, _ := c.Next(); bytes.HasPrefix(next, sum[:]) {
		return nil // another job has it
	}
	t, err := openTemplate(sum[:], sealed)
	if err != nil {
		return err
	}
	if m.bytes < t.cost() {
		return format.Damaged("it has more templates than it counts")
	}
	m.bytes -= t.cost()
	if err := bucket.Delete(sum[:]); err != nil {
		return err
	}
	parts := tx.Bucket(bucketTemplateParts)
	for part := uint32(1); part <= t.parts; part++ {
		if err := parts.Delete(sum.partKey(part)); err != nil {
			return err
		}
	}
	return nil
}

// removeInterrupted deletes the parts of templates without an entry.
func removeInterrupted(tx *bbolt.Tx) error {
	parts := tx.Bucket(bucketTemplateParts)
	c, gone := parts.Cursor(), [][]byte(nil)
	for k, _ := c.First(); k != nil; {
		if len(k) != sha256.Size+4 {
			return format.Damaged("invalid key %x of a part of a template", k)
		}
		sum := templateSum(k[:sha256.Size])
		if !hasTemplate(tx, &sum) {
			gone = append(gone, bytes.Clone(k))
			k, _ = c.Next()
			continue
		}
		last := sum.partKey(^uint32(0))
		if k, _ = c.Seek(last); bytes.Equal(k, last) {
			k, _ = c.Next()
		}
	}
	for _, k := range gone {
		if err := parts.Delete(k); err != nil {
			return err
		}
	}
	return nil
}
