package document

import (
	"bytes"
	"fmt"
	"io"
	"iter"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// streamChunk is about how many bytes WriteWithList writes at once.
const streamChunk = 64 << 10

// WriteWithTasks is WriteWithList for a document that ends with tasks, as those of
// NewJobWithTasks and NewArrayWithTasks do.
func WriteWithTasks(w io.Writer, doc any, tasks iter.Seq2[*dtaskv1.Task, error]) error {
	return WriteWithList(w, doc, "tasks", func(yield func(any, error) bool) {
		for task, err := range tasks {
			if !yield(NewTask(task), err) {
				return
			}
		}
	})
}

// WriteWithList writes a document with a final newline as MarshalIndent encodes it, and
// puts elements into the empty list with a name that it ends with. It holds about 64 KiB in
// memory, however many elements there are. It writes nothing before the first element or
// the end; after a later error, which it returns, w has the beginning of the document.
func WriteWithList(w io.Writer, doc any, name string, elements iter.Seq2[any, error]) error {
	const end = "]\n}"
	text, err := MarshalIndent(doc)
	if err != nil {
		return err
	}
	begin := fmt.Sprintf("%q: [", name)
	head, ok := bytes.CutSuffix(text, []byte(begin+end))
	if !ok {
		return fmt.Errorf("encoding JSON: a %T does not end with an empty list of %s", doc, name)
	}
	buf := bytes.NewBuffer(append(head, begin...))
	flush := func() error {
		if _, err := w.Write(buf.Bytes()); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
		buf.Reset()
		return nil
	}
	count := 0
	for element, err := range elements {
		if err != nil {
			return err
		}
		if count++; count > 1 {
			buf.WriteByte(',')
		}
		if err := appendElement(buf, element); err != nil {
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
