package backup

import (
	"cmp"
	"fmt"
	"slices"
)

// A Set is what a directory with several backups of one cluster has: states, each in a file
// without history, and segments of the history, which the states share. A segment has the
// jobs that left the state after one log index and up to another one.
type Set struct {
	States   []StateFile // ascending by index
	Segments []Segment
}

// StateFile is a file of a set that has a state.
type StateFile struct {
	Name  string
	Index uint64 // the last log entry in it
}

// Segment is a file of a set that has a part of the history.
type Segment struct {
	Name      string
	After, To uint64 // log indexes
}

// Names in a set. They sort by index.
const (
	stateName   = "state-%020d.dtbk"
	segmentName = "history-%020d-%020d.dtbk"
)

// NewStateFile names the state at a log index.
func NewStateFile(index uint64) StateFile {
	return StateFile{fmt.Sprintf(stateName, index), index}
}

// NewSegment names a segment.
func NewSegment(after, to uint64) Segment {
	return Segment{fmt.Sprintf(segmentName, after, to), after, to}
}

// ParseSet finds the files of a set among the names in a directory. Others are ignored.
func ParseSet(names []string) (s Set) {
	for _, name := range names {
		var a, b uint64
		if _, err := fmt.Sscanf(name, stateName, &a); err == nil && NewStateFile(a).Name == name {
			s.States = append(s.States, NewStateFile(a))
		}
		if _, err := fmt.Sscanf(name, segmentName, &a, &b); err == nil && NewSegment(a, b).Name == name {
			s.Segments = append(s.Segments, NewSegment(a, b))
		}
	}
	slices.SortFunc(s.States, func(a, b StateFile) int { return cmp.Compare(a.Index, b.Index) })
	slices.SortFunc(s.Segments, func(a, b Segment) int { return cmp.Or(cmp.Compare(b.To, a.To), cmp.Compare(a.After, b.After)) })
	return s
}

// HistoryTo returns the highest log index up to which segments have the whole history; 0
// without any.
func (s *Set) HistoryTo() uint64 {
	for _, last := range s.Segments { // the highest first
		if _, complete := s.Chain(last.To); complete {
			return last.To
		}
	}
	return 0
}

// Chain returns the segments that have the history from its beginning up to a log index, in
// order; complete is false if some are missing.
func (s *Set) Chain(to uint64) (chain []Segment, complete bool) {
	if to == 0 {
		return nil, true
	}
	for _, last := range s.Segments {
		if last.To != to || last.After >= last.To {
			continue
		}
		if before, complete := s.Chain(last.After); complete {
			return append(before, last), true
		}
	}
	return nil, false
}
