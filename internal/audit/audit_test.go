package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dtask/dtask/internal/auth"
)

// written writes a log of lines in files of three, and returns its directory, its files
// and the heads after each line.
func written(t *testing.T, count int) (dir string, files []File, heads []Head) {
	t.Helper()
	dir = t.TempDir()
	head := Head{}
	var b []byte
	flush := func() {
		if len(b) > 0 {
			first := head.Seq - uint64(bytes.Count(b, []byte("\n"))) + 1
			must(t, os.WriteFile(filepath.Join(dir, FileName(first)), b, 0o600))
		}
		b = nil
	}
	for i := range count {
		r := Record{Who: "ci", Method: "/dtask.v1.JobService/Submit", Object: fmt.Sprintf("job %d", i), Decision: Allowed}
		if i%3 == 0 {
			r = Record{Method: MethodOpen, Object: "n1", Decision: Allowed}
		}
		b, head = head.Append(b, r)
		heads = append(heads, head)
		if i%3 == 2 {
			flush()
		}
	}
	flush()
	files, err := Files(dir)
	must(t, err)
	return dir, files, heads
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// faults returns what Verify finds in the files of a directory.
func faults(t *testing.T, dir string, known Head) string {
	t.Helper()
	files, err := Files(dir)
	must(t, err)
	r, err := Verify(files, known)
	must(t, err)
	var texts []string
	for _, f := range r.Faults {
		texts = append(texts, f.String())
	}
	return strings.Join(texts, "; ")
}

func TestAnUnchangedLogIsVerified(t *testing.T) {
	t.Parallel()
	_, files, heads := written(t, 8)
	r, err := Verify(files, heads[6])
	must(t, err)
	if len(r.Faults) > 0 || r.Files != 3 || r.Lines != 8 || r.First != 1 || r.Last != 8 || r.Head != heads[7] || r.ServerID != "n1" || r.Torn {
		t.Errorf("got %+v", r)
	}
}

// Each way to cut or change a log, with what the chain or the cluster's head finds.
func TestACutOrChangedLogIsFound(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		harm func(files []File) error
		want string
	}{
		"a changed line": {
			func(f []File) error { return replace(f[1].Path, `"who":"ci"`, `"who":"me"`) },
			"audit-00000000000000000004.jsonl:3: line 6 of the log does not follow line 5: one of them was changed",
		},
		"a changed last line": {
			func(f []File) error { return replace(f[2].Path, `job 7`, `job 8`) },
			"line 8 of the log is not the one that the cluster knows: it, or one before it, was changed",
		},
		"a removed line": {
			func(f []File) error { return removeLine(f[1].Path, 1) },
			"lines 5 to 5 of the log are missing",
		},
		"a removed last line": {
			func(f []File) error { return removeLine(f[2].Path, 1) },
			"the log ends with line 7, and the cluster knows line 8: the lines between were removed",
		},
		"a deleted file": {
			func(f []File) error { return os.Remove(f[1].Path) },
			"lines 4 to 6 of the log are missing",
		},
		"a deleted last file": {
			func(f []File) error { return os.Remove(f[2].Path) },
			"the log ends with line 6, and the cluster knows line 8",
		},
		"all files deleted": {
			func(f []File) error {
				return errors.Join(os.Remove(f[0].Path), os.Remove(f[1].Path), os.Remove(f[2].Path))
			},
			"all lines up to 8 of the log are missing",
		},
		"a line that is not a record": {
			func(f []File) error { return replace(f[0].Path, `{"seq":2`, `{"seq":?`) },
			":2: the line is not a record",
		},
		"a file cut within a line": {
			func(f []File) error {
				info, err := os.Stat(f[0].Path)
				if err != nil {
					return err
				}
				return os.Truncate(f[0].Path, info.Size()-5)
			},
			"the line is incomplete, and is not the last one of the log",
		},
		"a renamed file": {
			func(f []File) error {
				return os.Rename(f[0].Path, filepath.Join(filepath.Dir(f[0].Path), FileName(2)))
			},
			"the file begins with line 1 of the log, and its name says 2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, files, heads := written(t, 8)
			must(t, test.harm(files))
			if got := faults(t, dir, heads[7]); !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// A chain that was written again from the beginning has no fault of its own.
func TestALogThatWasWrittenAgainIsFoundByTheHeadOfTheCluster(t *testing.T) {
	t.Parallel()
	_, _, heads := written(t, 8)
	dir, files, _ := written(t, 1)
	head, b := Head{}, []byte(nil)
	for range 8 {
		b, head = head.Append(b, Record{Method: MethodOpen, Object: "n1"})
	}
	must(t, os.WriteFile(files[0].Path, b, 0o600))
	if got := faults(t, dir, Head{}); got != "" {
		t.Errorf("without the head: %s", got)
	}
	if got := faults(t, dir, heads[5]); !strings.Contains(got, "line 6 of the log is not the one that the cluster knows") {
		t.Errorf("got %q", got)
	}
}

// The lines that the retention has deleted are named by the first one that is kept.
func TestTheFirstKeptLineNamesWhatWasBeforeIt(t *testing.T) {
	t.Parallel()
	_, files, heads := written(t, 8)
	must(t, os.Remove(files[0].Path))
	r, err := Verify(files[1:], heads[1])
	must(t, err)
	if len(r.Faults) > 0 || r.First != 4 || r.Before != heads[2].Hash {
		t.Errorf("got %+v", r)
	}
}

func TestAnIncompleteLastLineIsNoFault(t *testing.T) {
	t.Parallel()
	dir, files, heads := written(t, 7)
	f, err := os.OpenFile(files[2].Path, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteString(`{"seq":8,"at`)
	must(t, err)
	must(t, f.Close())
	r, err := Verify(files, heads[6])
	must(t, err)
	if len(r.Faults) > 0 || !r.Torn {
		t.Errorf("got %+v", r)
	}
	end, err := FindEnd(filepath.Join(dir, FileName(7)))
	must(t, err)
	if end.Head != heads[6] || !end.Clean {
		t.Errorf("got %+v", end)
	}
}

func TestALineIsLookedForWhereItMustBe(t *testing.T) {
	t.Parallel()
	_, files, heads := written(t, 8)
	other := heads[4]
	other.Hash[0]++
	for _, test := range []struct {
		files []File
		head  Head
		want  Presence
	}{
		{files, heads[4], Present},
		{files, other, Changed},
		{files, Head{Seq: 9}, Missing},
		{files[2:], heads[4], Expired},
		{nil, heads[4], Missing},
	} {
		if got, err := Look(test.files, test.head); err != nil || got != test.want {
			t.Errorf("line %d in %d files: got %d, %v, want %d", test.head.Seq, len(test.files), got, err, test.want)
		}
	}
}

func TestTextsOfALineAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\x00é", 10_000)
	b, _ := Head{}.Append(nil, Record{Who: long, Object: long, Reason: long, NS: long, Method: long, Remote: "\xff"})
	if len(b) > MaxLine {
		t.Errorf("the line has %d bytes", len(b))
	}
	count := 0
	_, err := lines(bytes.NewReader(b), func(l *line) error {
		count++
		if !l.valid || !strings.HasSuffix(l.Reason, "…") || l.Remote != "\uFFFD" {
			t.Errorf("got %+v", l.Record)
		}
		return nil
	})
	if err != nil || count != 1 {
		t.Errorf("%d lines, %v", count, err)
	}
}

func TestEveryMethodHasAClass(t *testing.T) {
	t.Parallel()
	all := auth.Methods()
	for _, m := range all {
		if _, ok := classes[m]; !ok {
			t.Errorf("%s has no class", m)
		}
	}
	for m := range classes {
		if !slices.Contains(all, m) {
			t.Errorf("%s is not a method", m)
		}
	}
}

// replace replaces a text in a file.
func replace(path, from, to string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	changed := strings.Replace(string(b), from, to, 1)
	if changed == string(b) {
		return fmt.Errorf("%s has no %q", path, from)
	}
	return os.WriteFile(path, []byte(changed), 0o600)
}

// removeLine removes a line of a file.
func removeLine(path string, at int) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	list := strings.SplitAfter(string(b), "\n")
	return os.WriteFile(path, []byte(strings.Join(slices.Delete(list, at, at+1), "")), 0o600)
}
