package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

// Decision is what happened to a call. The words are part of the stable surface.
type Decision string

// The decisions.
const (
	Allowed Decision = "allowed" // it had its effect, or may have had it
	Denied  Decision = "denied"  // the caller has not the right
	Failed  Decision = "failed"  // the caller has the right, and nothing happened
)

// Methods of lines that the log writes about itself.
const (
	// MethodOpen is the first line of each file and of each start. Its object is the
	// server id.
	MethodOpen = "audit.open"
	// MethodLost says that lines could not be written; their number is its count.
	MethodLost = "audit.lost"
	// MethodDamaged says that the files lacked lines that the cluster knows.
	MethodDamaged = "audit.damaged"
)

// Record is a line. Its JSON names are part of the stable surface.
type Record struct {
	Seq      uint64   `json:"seq"`                // number of the line, from 1
	At       string   `json:"at"`                 // by the coordinator's clock
	Who      string   `json:"who"`                // name of the identity; empty: anonymous
	Identity uint64   `json:"identity,omitempty"` // number of the identity; 0: not in the state
	Via      string   `json:"via"`                // token, key, peer, socket, open; empty: no credentials
	Remote   string   `json:"remote"`             // address of the caller
	Method   string   `json:"method"`             // full name, a path of the HTTP port, or one of the log itself
	NS       string   `json:"ns"`                 // namespaces
	Object   string   `json:"object"`             // what the call was about
	Decision Decision `json:"decision"`
	Reason   string   `json:"reason"`          // why it was denied or failed
	Count    uint64   `json:"count,omitempty"` // of calls or lines that this one stands for; 0: one
	Index    uint64   `json:"index"`           // log index that the coordinator had applied
	// Made is the number of the identity that a join made; 0: none, or unknown.
	Made uint64 `json:"made,omitempty"`
	// Cluster is, of a line that opens the log, the ID of the cluster that the coordinator
	// belongs to; empty: not known yet.
	Cluster string `json:"cluster,omitempty"`
	Prev    string `json:"prev"` // SHA-256 of the previous line with its newline, hexadecimal
}

// Replacing is in the object of the join of a worker that takes the place of another one, after
// its name.
const Replacing = ", replacing the one before"

// maxText bounds each text of a line, in bytes.
const maxText = 512

// MaxLine bounds a line, in bytes: an escaped character takes up to six.
const MaxLine = 32 << 10

// FormatTime returns a time as lines have it.
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// clip bounds a text, and removes what is not UTF-8.
func clip(text string) string {
	if len(text) > maxText {
		text = text[:maxText]
		for len(text) > 0 && !utf8.RuneStart(text[len(text)-1]) {
			text = text[:len(text)-1]
		}
		text += "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// Head is the last line of a chain. The zero value is a chain without lines.
type Head struct {
	Seq  uint64
	Hash [sha256.Size]byte // of the line with its newline
}

// Append appends a record as the next line of the chain, and returns the new head. It
// sets the record's number and its hash of the line before.
func (h Head) Append(b []byte, r Record) ([]byte, Head) {
	r.Seq, r.Prev = h.Seq+1, hex.EncodeToString(h.Hash[:])
	for _, text := range []*string{&r.Who, &r.Remote, &r.Method, &r.NS, &r.Object, &r.Reason, &r.Cluster} {
		*text = clip(*text)
	}
	line, _ := json.Marshal(r) // of strings and numbers: it never fails
	line = append(line, '\n')
	return append(b, line...), Head{Seq: r.Seq, Hash: sha256.Sum256(line)}
}

// ShortMethod is the name of a method without its service.
func ShortMethod(method string) string {
	if i := strings.LastIndexByte(method, '/'); i > 0 {
		return method[i+1:]
	}
	return method
}
