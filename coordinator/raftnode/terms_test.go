package raftnode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	"github.com/dtask/dtask/coordinator/logstore"
)

// command returns a sealed entry. branch is part of its data: two histories may use the
// same term.
func command(index, term uint64, branch byte) *raft.Log {
	log := &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: []byte{branch}}
	var head [17]byte
	binary.BigEndian.PutUint64(head[0:], index)
	binary.BigEndian.PutUint64(head[8:], term)
	sum := crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, log.Data)
	log.Extensions = binary.BigEndian.AppendUint32([]byte{1}, sum)
	return log
}

func TestWhatAnotherHistoryLacksIsFound(t *testing.T) {
	t.Parallel()
	if problem := logstore.Verify(command(1, 2, 3)); problem != "" {
		t.Fatal(problem)
	}
	rapid.Check(t, func(t *rapid.T) {
		var common, own, other termHistory
		grow := func(h *termHistory, index, term uint64, branch byte, label string) (uint64, uint64) {
			for range rapid.IntRange(0, 8).Draw(t, label) {
				term += rapid.Uint64Range(0, 2).Draw(t, "later term")
				index += rapid.Uint64Range(1, 3).Draw(t, "step") // entries that are no commands are between
				h.add(command(index, term, branch))
			}
			return index, term
		}
		index, term := grow(&common, 0, 1, 0, "common")
		own, other = common.clone(), common.clone()
		// Only the other history may use a term again: its replicas have forgotten it.
		ownIndex, _ := grow(&own, index, term+1, 1, "own")
		_, _ = grow(&other, index, term+rapid.Uint64Range(1, 4).Draw(t, "other term"), 2, "other")
		want := uint64(0)
		if ownIndex > index {
			want = own.list[slices.IndexFunc(own.list, func(s termSpan) bool { return s.last > index })].first
			want = max(want, index+1)
		}
		got := other.lacks(&own)
		if (got == 0) != (want == 0) || got != 0 && (got <= index || got > want) {
			t.Fatalf("got %d, want %d\ncommon %+v\nown %+v\nother %+v", got, want, common, own, other)
		}
		longer := own.clone()
		grow(&longer, ownIndex, 100, 1, "longer")
		if got := longer.lacks(&own); got != 0 {
			t.Fatalf("a longer history lacks %d", got)
		}
	})
}

// A replica that has forgotten a term leads in it again: both histories have the term, with other
// entries.
func TestWhatATermThatWasUsedTwiceHasIsLacking(t *testing.T) {
	t.Parallel()
	var own, other termHistory
	for branch, h := range []*termHistory{&own, &other} {
		h.add(command(1, 1, 0))
		h.add(command(2, 2, byte(1+branch)))
	}
	if got := other.lacks(&own); got != 2 {
		t.Errorf("the first entry that is lacking is %d, want 2", got)
	}
}

func TestAHistoryThatDoesNotReachBackTellsNothing(t *testing.T) {
	t.Parallel()
	var own, other termHistory
	own.add(command(5, 2, 1))
	for i := range uint64(maxTerms + 1) {
		other.add(command(10+i, 3+i, 1))
	}
	if other.from != 11 || len(other.list) != maxTerms {
		t.Fatalf("complete from %d on, with %d terms", other.from, len(other.list))
	}
	if got := other.lacks(&own); got != 0 {
		t.Errorf("got %d", got)
	}
	other = termHistory{from: 6} // of a snapshot of version 1
	if got := other.lacks(&own); got != 0 {
		t.Errorf("version 1: got %d", got)
	}
}

func TestASnapshotHeaderIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	var terms termHistory
	for i := range uint64(3) {
		terms.add(command(10+i, 3+i, 1))
	}
	terms.from = 7
	h := snapshotHeader{index: 12, term: 5, terms: terms}
	source := io.MultiReader(bytes.NewReader(h.encode()), strings.NewReader("state"))
	got, err := readHeader(source)
	rest, _ := io.ReadAll(source)
	if err != nil || got.index != 12 || got.term != 5 || got.terms.from != 7 || !slices.Equal(got.terms.list, terms.list) || string(rest) != "state" {
		t.Errorf("got %+v, %v, then %q", got, err, rest)
	}
	old := append([]byte(snapshotMagicV1), h.encode()[len(snapshotMagic):fixedHeader]...)
	old = binary.BigEndian.AppendUint32(old, crc32.Checksum(old, castagnoli))
	if got, err := readHeader(bytes.NewReader(old)); err != nil || got.index != 12 || got.terms.from != 13 || len(got.terms.list) > 0 {
		t.Errorf("version 1: got %+v, %v", got, err)
	}
	for i := range h.encode() {
		damaged := h.encode()
		damaged[i] ^= 1
		if _, err := readHeader(bytes.NewReader(damaged)); err == nil {
			t.Errorf("a flipped bit in byte %d was not found", i)
		}
	}
	if _, err := readHeader(bytes.NewReader(h.encode()[:30])); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a short header: %v", err)
	}
}
