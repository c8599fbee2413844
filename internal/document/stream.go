package document

import (
	"bytes"
	"fmt"
	"io"
	"iter"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// streamChunk is about how many bytes WriteWithTasks writes at once.
const streamChunk = 64 << 10

// WriteWithTasks writes a document with a final newline as MarshalIndent encodes it, and
// puts tasks into the empty list of tasks that it ends with, as those of NewJobWithTasks
// and NewArrayWithTasks do. It holds about 64 KiB in memory, however many tasks there
// are. It writes nothing before the first task or the end of tasks; after a later error,
// which it returns, w has the beginning of the document.
func WriteWithTasks(w io.Writer, doc any, tasks iter.Seq2[*dtaskv1.Task, error]) error {
	const end = "]\n}"
	text, err := MarshalIndent(doc)
	if err != nil {
		return err
	}
	head, ok := bytes.CutSuffix(text, []byte(`"tasks": [`+end))
	if !ok {
		return fmt.Errorf("encoding JSON: a %T does not end with an empty list of tasks", doc)
	}
	buf := bytes.NewBuffer(append(head, `"tasks": [`...))
	flush := func() error {
		if _, err := w.Write(buf.Bytes()); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
		buf.Reset()
		return nil
	}
	count := 0
	for task, err := range tasks {
		if err != nil {
			return err
		}
		if count++; count > 1 {
			buf.WriteByte(',')
		}
		if err := appendElement(buf, NewTask(task)); err != nil {
			return err
		}
		if buf.Len() >= streamChunk {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if count > 0 {
		buf.WriteString("\n  ")
	}
	buf.WriteString(end + "\n")
	return flush()
}
