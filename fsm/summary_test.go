package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// summaryOf is the summary of a job in these tests.
func summaryOf(a *ArchivedJob) []byte { return fmt.Appendf(nil, "summary of job %d", a.ID()) }

// summarized writes an archived job with a summary.
func summarized(tb failer, a *ArchivedJob) []byte {
	var b bytes.Buffer
	r := RecordWriter{Summarize: summaryOf}
	if _, err := r.Write(a, &b); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// pieces reads bytes and then fails.
type pieces struct {
	b    []byte
	read int
	err  error
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.read == len(p.b) {
		return 0, p.err
	}
	n := copy(b, p.b[p.read:])
	p.read += n
	return n, nil
}

func TestASummaryIsReadFromTheBeginningOfALargeRecord(t *testing.T) {
	t.Parallel()
	a := ended(t, 10_000, 20)
	for name, rec := range map[string][]byte{"with": summarized(t, a), "without": recordOf(t, a)} {
		_, size, err := ReadHead(rec)
		if err != nil {
			t.Fatal(err)
		}
		in := &pieces{b: rec[size:], err: errors.New("disk error")}
		got, err := ReadSummary(in)
		if want := string(summaryOf(a)); err != nil || string(got) != want && name == "with" || got != nil && name == "without" {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
		if in.read > 8<<10 {
			t.Errorf("%s: read %d of %d bytes", name, in.read, len(rec))
		}
	}
}

func TestADamagedSummaryIsAnError(t *testing.T) {
	t.Parallel()
	a := ended(t, 3, 0)
	rec := summarized(t, a)
	_, size, err := ReadHead(rec)
	if err != nil {
		t.Fatal(err)
	}
	rest := bytes.Clone(rec[size:])
	rest[frameHead] ^= 1
	bad := append(bytes.Clone(rec[:size]), rest...)
	cut := errors.New("disk error")
	for name, in := range map[string]io.Reader{
		"flipped bit": bytes.NewReader(rest), "cut": bytes.NewReader(rec[size : size+10]), "unreadable": &pieces{err: cut},
	} {
		if got, err := ReadSummary(in); err == nil {
			t.Errorf("%s: got %q", name, got)
		}
	}
	s := New()
	s.nextJob = 10
	if _, err := s.AdoptRecord(bytes.NewReader(bad)); err == nil {
		t.Error("the record is accepted")
	}
}

// A record must fit into frames, whatever a summary has.
func TestATooLongSummaryIsLeftOut(t *testing.T) {
	t.Parallel()
	a := ended(t, 3, 0)
	for n, want := range map[int]int{maxSummary: maxSummary, maxSummary + 1: 0} {
		var b bytes.Buffer
		r := RecordWriter{Summarize: func(*ArchivedJob) []byte { return make([]byte, n) }}
		if _, err := r.Write(a, &b); err != nil {
			t.Fatal(err)
		}
		_, size, err := ReadHead(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ReadSummary(bytes.NewReader(b.Bytes()[size:])); err != nil || len(got) != want {
			t.Errorf("%d bytes: got %d, %v, want %d", n, len(got), err, want)
		}
	}
}

// The files have records of two formats, without and with summaries. They are never
// written again, only read as the jobs that they were made of.
func TestOldRecordsAreReadForever(t *testing.T) {
	t.Parallel()
	s := New()
	for _, e := range goldenLog() {
		s.Apply(e, nil)
	}
	for _, version := range []string{"v1", "v2"} {
		for _, id := range []JobID{3, 4, 5} { // those that have ended
			file := filepath.Join("testdata", fmt.Sprintf("record_%s_job%d.bin", version, id))
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			old := New()
			old.nextJob = s.nextJob
			if got, err := old.AdoptRecord(bytes.NewReader(data)); err != nil || got != id {
				t.Fatalf("%s: got job %d, %v", file, got, err)
			}
			got, _ := old.Job(id)
			want, _ := s.Job(id)
			if diff := cmp.Diff(string(describeJob(nil, s, want)), string(describeJob(nil, old, got))); diff != "" {
				t.Errorf("%s: %s", file, diff)
			}
			_, size, err := ReadHead(data)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if summary, err := ReadSummary(bytes.NewReader(data[size:])); err != nil || (summary != nil) != (version == "v2") {
				t.Errorf("%s: got summary %q, %v", file, summary, err)
			}
		}
	}
}
