package cluster

import (
	"encoding/json"
	"maps"
	"time"
)

// TaskFile is a task as a job file has it.
type TaskFile map[string]any

// JobFile is the text of a job file.
func JobFile(name string, tasks ...TaskFile) string {
	return JobFileWith(map[string]any{"name": name}, tasks...)
}

// JobFileWith is JobFile with any fields of the job.
func JobFileWith(job map[string]any, tasks ...TaskFile) string {
	whole := map[string]any{"tasks": tasks}
	maps.Copy(whole, job)
	text, err := json.Marshal(map[string]any{"version": 1, "job": whole})
	if err != nil {
		return err.Error() // which dtaskctl will not take for a job
	}
	return string(text)
}

// After returns the task with dependencies.
func (t TaskFile) After(ids ...string) TaskFile {
	if len(ids) > 0 {
		t["dependencies"] = ids
	}
	return t
}

// With returns the task with one more field.
func (t TaskFile) With(field string, value any) TaskFile {
	t[field] = value
	return t
}

// Builtin is a task of a built-in type.
func Builtin(id, kind, payload string) TaskFile {
	return TaskFile{"id": id, "type": kind, "payload": payload}
}

// Mark is a task whose command writes to the ledger, works for a while, and
// ends with exit code 0. More arguments are given to mark.
func (p Programs) Mark(id, ledger string, work time.Duration, args ...string) TaskFile {
	command := append([]string{p.Path(markProgram), "-ledger", ledger, "-for", work.String()}, args...)
	return TaskFile{"id": id, "command": command}
}
