package spec

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// MessageSuffix is the suffix of the names of files with the message
	// dtask.v1.JobSpec in JSON. They can have jobs that no job file has, such as
	// one with a binary payload or with more text than a job file may have.
	MessageSuffix = ".jobspec.json"
	// MaxMessageBytes bounds such a file: binary payloads take a third more in JSON.
	MaxMessageBytes = 4 * MaxJobBytes
)

// IsMessage reports whether a file has a message instead of a job file.
func IsMessage(path string) bool { return strings.HasSuffix(path, MessageSuffix) }

// FormatMessage writes any job that was accepted once.
func FormatMessage(job *dtaskv1.JobSpec) ([]byte, error) {
	text, err := protojson.Marshal(job)
	if err != nil {
		return nil, fmt.Errorf("encoding the job: %w", err)
	}
	return text, nil
}

// ParseMessage parses what FormatMessage writes, and checks the job. The path is only
// used in messages. The error is [Faults].
func ParseMessage(path string, text []byte) (*dtaskv1.JobSpec, error) {
	refused := func(what, do string) error {
		return Faults{{Path: path, Line: 1, Column: 1, Where: path, What: what, Do: do}}
	}
	if len(text) > MaxMessageBytes {
		return nil, refused(fmt.Sprintf("has more than %s", bytesText(MaxMessageBytes)), "split the job")
	}
	job := &dtaskv1.JobSpec{}
	if err := protojson.Unmarshal(text, job); err != nil {
		return nil, refused("is not a dtask.v1.JobSpec in JSON: "+plainProto(err), "rename it if it is a job file: "+MessageSuffix+" is for what dtaskd inspect exports")
	}
	faults := Check(job)
	for i := range faults {
		faults[i].Path, faults[i].Line, faults[i].Column = path, 1, 1
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return job, nil
}

// plainProto returns the text of an error of package protojson, which begins with
// "proto:" and a space of changing width.
func plainProto(err error) string {
	text := strings.TrimPrefix(err.Error(), "proto:")
	return strings.TrimLeft(text, " \u00a0")
}
