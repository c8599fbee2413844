package spec_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dtask/dtask/spec"
)

func oneJob(name string) string {
	return fmt.Sprintf("job:\n  name: %s\n  tasks:\n    - {id: a, type: noop}\n", name)
}

func TestAFileMayHoldSeveralJobs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"one":                    {oneJob("a"), []string{"a"}},
		"one after a mark":       {"# the job\n---\n" + oneJob("a"), []string{"a"}},
		"two":                    {oneJob("a") + "---\n" + oneJob("b"), []string{"a", "b"}},
		"empty ones are no jobs": {"---\n---  \n# nothing\n" + oneJob("a") + "--- # next\n" + oneJob("b") + "...\n---\n", []string{"a", "b"}},
		"carriage returns":       {strings.ReplaceAll(oneJob("a")+"---\n"+oneJob("b"), "\n", "\r\n"), []string{"a", "b"}},
		"dashes inside text":     {"job:\n  name: a\n  tasks:\n    - id: x\n      run: |\n        ---\n        echo\n", []string{"a"}},
	} {
		jobs, err := spec.ParseAll("f", []byte(c.text), spec.Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, j := range jobs {
			got = append(got, j.GetHeader().GetName())
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestFaultsOfSeveralJobsNameTheLinesOfTheFile(t *testing.T) {
	t.Parallel()
	text := oneJob("a") + "---\n" + oneJob("b") + "  wrong: 1\n---\n" + oneJob("c") + "---\njob: {name: d}\n"
	_, err := spec.ParseAll("jobs.yaml", []byte(text), spec.Options{})
	var faults spec.Faults
	if !errors.As(err, &faults) || len(faults) != 2 {
		t.Fatalf("got %v", err)
	}
	if !strings.HasPrefix(faults[0].String(), "jobs.yaml:10:3: ") || faults[1].Line != 17 {
		t.Errorf("got %v", err)
	}
	if _, err := spec.ParseAll("f", nil, spec.Options{}); !strings.Contains(fmt.Sprint(err), "the file is empty") {
		t.Errorf("an empty file: %v", err)
	}
}
