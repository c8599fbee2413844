package cli

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/dtask/dtask/client"
)

func TestOnlyYesConfirms(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]bool{"y\n": true, "Yes\n": true, "\tyes": true, "n\n": false, "\n": false, "": false, "yeah\n": false} {
		a, _, stderr := setup(t, nil)
		a.in = strings.NewReader(answer)
		got, err := a.ask("purge 3 dead letters of 2 jobs?")
		if err != nil || got != want {
			t.Errorf("answer %q: got %t, %v; want %t", answer, got, err, want)
		}
		if stderr.String() != "purge 3 dead letters of 2 jobs? [y/N] " {
			t.Errorf("got question %q", stderr)
		}
	}
}

func TestSelectionsAreGroupedByJob(t *testing.T) {
	t.Parallel()
	a, _, _ := setup(t, nil)
	got, err := a.selections(t.Context(), nil, []string{"42/a", "43", "42/b", "42/a", "43/x", "44/y", "44"}) // without a call
	want := []selection{{jobRef: jobRef{job: "42"}, tasks: []string{"a", "b"}}, {jobRef: jobRef{job: "43"}}, {jobRef: jobRef{job: "44"}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

func TestLargeSelectionsAreSplit(t *testing.T) {
	t.Parallel()
	many := selection{jobRef: jobRef{job: "42"}}
	for i := range client.MaxNamed + 1 {
		many.tasks = append(many.tasks, fmt.Sprint(i))
	}
	got := splitSelections([]selection{many, {jobRef: jobRef{job: "43"}, tasks: []string{"a"}}, {jobRef: jobRef{job: "44"}}})
	if len(got) != 3 || len(got[0].tasks) != client.MaxNamed || len(got[1].tasks) != 1 || got[2].job != "43" {
		t.Errorf("got %d parts; want two of job 42, one of job 43 and none of job 44, which would select the whole job", len(got))
	}
}
