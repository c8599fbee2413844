package fsm

import (
	"bytes"
	"testing"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// scheduledRun is an ended run of a schedule with three tasks of a size.
func scheduledRun(tb testing.TB, body int) *ArchivedJob {
	tb.Helper()
	a := ended(tb, 3, 8)
	if a.MayShare() {
		tb.Error("an ordinary job shares its tasks")
	}
	b := NewChunkBuilder(0)
	for _, name := range []string{"a", "b", "c"} {
		b.Add(name, 0, nil, make([]byte, body))
	}
	j := *a.job
	j.chunks = []*Chunk{b.Chunk()}
	j.header = &dtaskv1.JobHeader{Name: "n", Run: &dtaskv1.ScheduledRun{Schedule: "n"}}
	return &ArchivedJob{job: &j, workers: a.workers}
}

// A record is the same whether it is written as a whole, or apart from its template and joined;
// and it is split where it would be joined.
func TestARecordIsWrittenApartFromItsTemplate(t *testing.T) {
	t.Parallel()
	for _, summary := range []string{"", "a summary"} {
		a := scheduledRun(t, 100_000)
		r := RecordWriter{Summarize: func(*ArchivedJob) []byte { return []byte(summary) }}
		var whole, apart, template, before bytes.Buffer
		if _, err := r.Write(a, &whole); err != nil {
			t.Fatal(err)
		}
		if err := r.WriteTemplate(a, &template); err != nil {
			t.Fatal(err)
		}
		at := 0
		if _, err := r.WriteApart(a, &apart, func() error { at = apart.Len(); return nil }); err != nil {
			t.Fatal(err)
		}
		joined := append(bytes.Clone(apart.Bytes()[:at]), template.Bytes()...)
		if joined = append(joined, apart.Bytes()[at:]...); !bytes.Equal(joined, whole.Bytes()) {
			t.Errorf("the joined record of %d bytes is not the whole one of %d", len(joined), whole.Len())
		}
		_, size, err := ReadHead(whole.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		var middle, after bytes.Buffer
		if err := SplitRecord(bytes.NewReader(whole.Bytes()[size:]), &before, &middle, &after); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(middle.Bytes(), template.Bytes()) || size+before.Len() != at || !bytes.Equal(after.Bytes(), apart.Bytes()[at:]) {
			t.Errorf("split into %d, %d and %d bytes; the template has %d at %d", size+before.Len(), middle.Len(), after.Len(), template.Len(), at)
		}
	}
}

func TestAShortTemplateIsNotShared(t *testing.T) {
	t.Parallel()
	for body, want := range map[int]bool{100: false, MinTemplate/3 - 100: false, MinTemplate / 3: true} {
		if got := scheduledRun(t, body).MayShare(); got != want {
			t.Errorf("tasks of 3 × %d bytes: %t", body, got)
		}
	}
}

// Whatever is split is the same when it is joined.
func FuzzSplitRecord(f *testing.F) {
	for _, summary := range []string{"", "a summary"} {
		w := RecordWriter{Summarize: func(*ArchivedJob) []byte { return []byte(summary) }}
		var b bytes.Buffer
		a := scheduledRun(f, 100)
		if _, err := w.Write(a, &b); err != nil {
			f.Fatal(err)
		}
		_, size, err := ReadHead(b.Bytes())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes()[size:])
	}
	f.Add([]byte{byte(frameChunk), 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, template, after bytes.Buffer
		err := SplitRecord(bytes.NewReader(data), &before, &template, &after)
		joined := append(append(before.Bytes(), template.Bytes()...), after.Bytes()...)
		if err == nil && !bytes.Equal(joined, data) || !bytes.HasPrefix(data, joined) {
			t.Errorf("%x is split into %x, %x and %x: %v", data, before.Bytes(), template.Bytes(), after.Bytes(), err)
		}
	})
}
