package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Marshal encodes a document on one line, without a final newline.
func Marshal(doc any) ([]byte, error) { return encode(doc, "") }

// MarshalIndent encodes a document for reading, without a final newline.
func MarshalIndent(doc any) ([]byte, error) { return encode(doc, "  ") }

func encode(doc any, indent string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(doc); err != nil {
		return nil, fmt.Errorf("encoding JSON: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// appendElement appends an element of a list that is a field of the document itself, as
// MarshalIndent encodes it.
func appendElement(b *bytes.Buffer, element any) error {
	const indent = "    "
	text, err := encode(element, "  ")
	if err != nil {
		return err
	}
	b.WriteString("\n" + indent)
	b.Write(bytes.ReplaceAll(text, []byte("\n"), []byte("\n"+indent)))
	return nil
}

// Time formats a Unix time in milliseconds as RFC 3339 in UTC.
func Time(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// optionalTime is Time, or nil for 0.
func optionalTime(ms int64) *string {
	if ms == 0 {
		return nil
	}
	return new(Time(ms))
}

// rawValue returns b itself if it is valid JSON, so that large numbers keep all
// digits, null if it is empty, and a JSON string otherwise.
func rawValue(b []byte) json.RawMessage {
	if len(b) == 0 {
		return nil
	}
	if json.Valid(b) {
		return b
	}
	text, err := Marshal(string(b))
	if err != nil {
		return nil // cannot happen: every string has a JSON form
	}
	return text
}

// list converts messages to documents. It never returns nil, which JSON would
// show as null.
func list[M, D any](messages []M, convert func(M) D) []D {
	docs := make([]D, 0, len(messages))
	for _, m := range messages {
		docs = append(docs, convert(m))
	}
	return docs
}

// JobState is a job's state as users write it.
func JobState(s dtaskv1.JobState) string { return enumName(s.String(), "JOB_STATE_") }

// TaskState is a task's state as users write it.
func TaskState(s dtaskv1.TaskState) string { return enumName(s.String(), "TASK_STATE_") }

// Priority is a priority as users write it.
func Priority(p dtaskv1.Priority) string { return enumName(p.String(), "PRIORITY_") }

// Condition is how a dependency, or a needed job, must end, as users write it.
func Condition(c dtaskv1.Condition) string {
	return enumName(max(c, dtaskv1.Condition_CONDITION_COMPLETED).String(), "CONDITION_")
}

func enumName(name, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(name, prefix))
}
