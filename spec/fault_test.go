package spec

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// golden compares got with a file, or rewrites the file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func faultsOf(t *testing.T, err error) Faults {
	t.Helper()
	var fs Faults
	if !errors.As(err, &fs) || len(fs) == 0 {
		t.Fatalf("error %v is no list of faults", err)
	}
	return fs
}

func TestEveryFaultHasLocationProblemAndAdvice(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/faults/*.[yj]*")
	if err != nil || len(files) < 80 {
		t.Fatalf("found %d files, error %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			job, err := Parse(filepath.Base(file), text, Options{})
			if job != nil {
				t.Error("a job came with the faults")
			}
			for _, f := range faultsOf(t, err) {
				if f.Line < 1 || f.Column < 1 || f.Where == "" || f.What == "" || f.Do == "" {
					t.Errorf("fault %+v is not complete", f)
				}
			}
			golden(t, strings.TrimSuffix(file, filepath.Ext(file))+".txt", err.Error()+"\n")
		})
	}
}

func TestThePathIsShownAsItWasGiven(t *testing.T) {
	t.Parallel()
	_, err := Parse("-", []byte("job: 5"), Options{})
	if got := err.Error(); !strings.HasPrefix(got, "-:1:6: job: ") {
		t.Errorf("got %q", got)
	}
}

func TestFileBeyondItsLimitsIsRefused(t *testing.T) {
	t.Parallel()
	tasks := func(n int, each string) string {
		var b strings.Builder
		b.WriteString("job:\n  name: x\n  tasks:\n")
		for i := range n {
			fmt.Fprintf(&b, "  - {id: t%d, %s}\n", i, strings.ReplaceAll(each, "%", fmt.Sprint(i)))
		}
		return b.String()
	}
	for name, c := range map[string]struct{ text, want string }{
		"bytes":     {strings.Repeat("#", MaxFileBytes+1), "at most 16 MiB"},
		"tasks":     {tasks(MaxListedTasks+1, "type: noop"), "lists 100,001 tasks"},
		"policies":  {tasks(20_000, `type: noop, env: {"N": "%"}`), "different policies"},
		"copies":    {strings.Replace(tasks(100_000, `type: noop, env: {"N": "%"}`), "tasks:", "defaults: {env: {"+sequence("V%: x, ", 5000)+"}}\n  tasks:", 1), "different policies up to this task"},
		"env":       {tasks(1, `type: noop, env: {A: `+strings.Repeat("a", MaxEnvBytes)+`}`), "the environment has"},
		"arguments": {tasks(1, `command: [echo, `+strings.Repeat("a", MaxCommandBytes)+`]`), "at most 32 KiB"},
		"shell":     {tasks(1, `run: `+strings.Repeat("a", MaxCommandBytes+1)), "at most 32 KiB"},
		"one task":  {tasks(1, `run: x, inputs: [`+strings.Repeat(strings.Repeat("a", 4000)+", ", 100)+`]`), "with its payload, inputs and dependencies"},
		"labels":    {strings.Replace(tasks(1, "run: x"), "tasks:", "labels: {"+sequence("l%: x, ", 65)+"}\n  tasks:", 1), "has 65 entries"},
		"classes":   {tasks(1, `run: x, retry: {on: [`+sequence(`"error:e%", `, 65)+`]}`), "lists 65 classes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("f.yaml", []byte(c.text), Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %.300v, want %q in it", err, c.want)
			}
		})
	}
}

// sequence repeats a pattern with % replaced by the number.
func sequence(pattern string, n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.ReplaceAll(pattern, "%", fmt.Sprint(i)))
	}
	return b.String()
}
