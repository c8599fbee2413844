package index

import (
	"encoding/binary"

	"github.com/dtask/dtask/fsm"
)

// Term is the hash of something that a search can ask for: a name, an owner, a
// state, or a label with its value. If two of them share a hash, a search reads
// jobs that don't match; history checks each.
type Term [8]byte

// Kinds of terms.
const (
	termName byte = iota + 1
	termOwner
	termState
	termLabel
	termNamespace
)

// newTerm hashes its arguments with FNV-1a, each part after its length.
func newTerm(kind byte, parts ...string) (t Term) {
	const offset, prime = 14695981039346656037, 1099511628211
	h := (uint64(offset) ^ uint64(kind)) * prime
	for _, p := range parts {
		n := uint64(len(p))
		for ; n >= 0x80; n >>= 7 {
			h = (h ^ (n&0x7f | 0x80)) * prime
		}
		h = (h ^ n) * prime
		for i := range len(p) {
			h = (h ^ uint64(p[i])) * prime
		}
	}
	binary.BigEndian.PutUint64(t[:], h)
	return t
}

func stateTerm(s fsm.JobState) Term { return newTerm(termState, s.String()) }

// appendTerms appends all terms of a job, in no order.
func appendTerms(list []Term, h *fsm.Head) []Term {
	list = append(list, stateTerm(h.State))
	if name := h.Header.GetName(); name != "" {
		list = append(list, newTerm(termName, name))
	}
	if owner := h.Header.GetOwner(); owner != "" {
		list = append(list, newTerm(termOwner, owner))
	}
	if namespace := h.Header.GetNamespace(); namespace != "" {
		list = append(list, newTerm(termNamespace, namespace))
	}
	for key, value := range h.Header.GetLabels() {
		list = append(list, newTerm(termLabel, key, value))
	}
	return list
}
