package raftnode

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/coordinator/logstore"
)

// maxTerms is how many terms a termHistory has at most. A replica that returns after
// more changes of the leader cannot recognize another history by it.
const maxTerms = 1000

// A termHistory lists the terms of which commands are in the state, oldest first: a
// snapshot no longer has its entries, so it has this list. Two histories that have the
// same last command of a term are equal up to it (Ongaro, "Consensus: Bridging Theory
// and Practice", 3.5, Log Matching). Values are not changed, except by add.
type termHistory struct {
	from uint64 // the list is complete from this entry on
	list []termSpan
}

// A termSpan is the commands of one term.
type termSpan struct {
	term        uint64
	first, last uint64 // entries
	// sum is the checksum of the first entry: a replica with an older directory may have
	// forgotten the term and lead in it again. 0: unknown.
	sum uint32
}

// add records that a command was applied.
func (h *termHistory) add(log *raft.Log) {
	if n := len(h.list); n > 0 && h.list[n-1].term == log.Term {
		h.list[n-1].last = log.Index
		return
	}
	if len(h.list) == maxTerms {
		h.from = h.list[1].first
		h.list = slices.Delete(h.list, 0, 1)
	}
	h.list = append(h.list, termSpan{term: log.Term, first: log.Index, last: log.Index, sum: logstore.Sum(log)})
}

func (h *termHistory) clone() termHistory { return termHistory{h.from, slices.Clone(h.list)} }

// lacks returns the first command of a replica's history that another history does not
// have; 0 if it has all, or does not reach back far enough to tell.
func (h *termHistory) lacks(own *termHistory) (first uint64) {
	for _, mine := range slices.Backward(own.list) {
		i := slices.IndexFunc(h.list, func(s termSpan) bool { return s.term == mine.term })
		switch {
		case i >= 0 && h.list[i].is(mine):
			if h.list[i].last < mine.last {
				first = h.list[i].last + 1
			}
			return first
		case i < 0 && mine.first < h.from:
			return first
		}
		first = mine.first
	}
	return first
}

// is reports whether both spans begin with the same entry, as far as that is known.
func (s termSpan) is(other termSpan) bool {
	return s.sum == 0 || other.sum == 0 || s.first == other.first && s.sum == other.sum
}

// spanLen is the length of an encoded termSpan.
const spanLen = 8 + 8 + 8 + 4

// appendTo encodes the list. Changing this breaks existing snapshots.
func (h *termHistory) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.from)
	b = binary.BigEndian.AppendUint32(b, uint32(len(h.list))) //nolint:gosec // at most maxTerms
	for _, s := range h.list {
		b = binary.BigEndian.AppendUint64(b, s.term)
		b = binary.BigEndian.AppendUint64(b, s.first)
		b = binary.BigEndian.AppendUint64(b, s.last)
		b = binary.BigEndian.AppendUint32(b, s.sum)
	}
	return b
}

// decodeSpans decodes the spans of a list.
func decodeSpans(b []byte) ([]termSpan, error) {
	if len(b)%spanLen != 0 {
		return nil, fmt.Errorf("%d bytes are no list of terms", len(b))
	}
	var list []termSpan
	for ; len(b) > 0; b = b[spanLen:] {
		list = append(list, termSpan{
			term: binary.BigEndian.Uint64(b), first: binary.BigEndian.Uint64(b[8:]), last: binary.BigEndian.Uint64(b[16:]),
			sum: binary.BigEndian.Uint32(b[24:]),
		})
	}
	return list, nil
}
