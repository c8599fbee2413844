package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Change is a line of `watch`.
type Change struct {
	Index uint64 `json:"index"`
	Whole bool   `json:"whole"` // the tasks are all that the job has
	Job   Job    `json:"job"`
	Tasks []Task `json:"tasks"` // those that changed
}

// ChangeOf makes the document of a change.
func ChangeOf(index uint64, whole bool, job *dtaskv1.Job, tasks []*dtaskv1.Task) Change {
	out := Change{Index: index, Whole: whole, Job: JobOf(job), Tasks: make([]Task, 0, len(tasks))}
	for _, t := range tasks {
		out.Tasks = append(out.Tasks, TaskOf(t))
	}
	return out
}

// WriteJSONLine writes a JSON document of one line.
func WriteJSONLine(w io.Writer, doc any) error {
	text, err := marshal(doc)
	if err != nil {
		return err
	}
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil {
		return fmt.Errorf("making JSON: %w", err)
	}
	line.WriteByte('\n')
	if _, err := w.Write(line.Bytes()); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}
