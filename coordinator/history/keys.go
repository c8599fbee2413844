package history

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/dtask/dtask/fsm"
)

// The buckets of the file.
var (
	bucketJobs  = []byte("jobs")  // job → value, see values.go
	bucketParts = []byte("parts") // job, number → the rest of a long record
	bucketOrder = []byte("order") // log index, job → cost
	bucketIndex = []byte("index") // lists of jobs by word, see postings.go
	bucketTimes = []byte("times") // block of jobs → when they were submitted, see times.go
	bucketMeta  = []byte("meta")
)

var buckets = [][]byte{bucketJobs, bucketParts, bucketOrder, bucketIndex, bucketMeta}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func jobKey(id fsm.JobID) []byte { return appendJobKey(nil, id) }

func appendJobKey(b []byte, id fsm.JobID) []byte { return binary.BigEndian.AppendUint64(b, uint64(id)) }

func partKey(id fsm.JobID, part uint32) []byte {
	return binary.BigEndian.AppendUint32(jobKey(id), part)
}

// Place is where a job stands in the order in which jobs left the state.
type Place struct {
	Index uint64 // of the log entry
	Job   fsm.JobID
}

func orderKey(p Place) []byte { return appendOrderKey(nil, p) }

func appendOrderKey(b []byte, p Place) []byte {
	return appendJobKey(binary.BigEndian.AppendUint64(b, p.Index), p.Job)
}

func readOrderKey(k []byte) (p Place, ok bool) {
	if len(k) != 16 {
		return Place{}, false
	}
	return Place{binary.BigEndian.Uint64(k), fsm.JobID(binary.BigEndian.Uint64(k[8:]))}, true
}

// segmentBits is how many low bits of a job's number are within a segment.
const segmentBits = 16

// A word is something that jobs are looked for by.
type word [8]byte

// Kinds of words.
const (
	wordName byte = iota + 1
	wordOwner
	wordState
	wordLabel
)

// makeWord hashes what is looked for, by FNV-1a over its parts with their lengths in front.
// Two things with one hash only cost a look at a job that does not match.
func makeWord(kind byte, parts ...string) (w word) {
	const start, prime = 14695981039346656037, 1099511628211
	h := (uint64(start) ^ uint64(kind)) * prime
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
	binary.BigEndian.PutUint64(w[:], h)
	return w
}

func stateWord(s fsm.JobState) word { return makeWord(wordState, s.String()) }

// words are all that a job can be looked for by, in no order.
func words(h *fsm.Head) []word { return appendWords(nil, h) }

func appendWords(list []word, h *fsm.Head) []word {
	list = append(list, stateWord(h.State))
	if name := h.Header.GetName(); name != "" {
		list = append(list, makeWord(wordName, name))
	}
	if owner := h.Header.GetOwner(); owner != "" {
		list = append(list, makeWord(wordOwner, owner))
	}
	for key, value := range h.Header.GetLabels() {
		list = append(list, makeWord(wordLabel, key, value))
	}
	return list
}
