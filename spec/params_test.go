package spec

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const withParams = `job:
  name: nightly
  labels: {team: data}
  params:
    - {name: day, required: true, pattern: '\d{4}-\d{2}-\d{2}'}
    - {name: threads, type: number, default: 4, min: 1, max: 64}
    - {name: fast, type: boolean, default: false}
    - {name: limit, type: duration, default: 10m, max: 1h}
    - {name: zone, default: eu, enum: [eu, us]}
  tasks:
    - {id: a, run: "work ${{ params.day }} ${{ params.threads }} ${{ params.fast }} ${{ params.zone }}", timeout: "${{ params.limit }}"}
`

func TestValuesThatAreSetReplaceTheDefaults(t *testing.T) {
	t.Parallel()
	job, err := Parse("f", []byte(withParams), Options{Params: map[string]string{
		"day": "2026-05-01", "threads": "0x10", "fast": "true", "limit": "1h", "zone": "us",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := job.GetTasks()[0].GetBody().GetRun(), "work 2026-05-01 16 true us"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := job.GetHeader().GetPolicies()[0].GetTimeoutMs(); got != 3_600_000 {
		t.Errorf("got a timeout of %d ms", got)
	}
	want := map[string]string{"day": "2026-05-01", "threads": "16", "fast": "true", "limit": "1h", "zone": "us"}
	if got := job.GetHeader().GetParams(); !maps.Equal(got, want) {
		t.Errorf("the job keeps %v, want %v", got, want)
	}
}

func TestInvalidValuesAreReportedAtTheDeclaration(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ set, want string }{
		{"day=today", `f:5:7: job.params.day: "today" does not match the pattern; write a value that matches \d{4}-\d{2}-\d{2} as a whole`},
		{"day=x2026-05-01", `f:5:7: job.params.day: "x2026-05-01" does not match`},
		{"day=${{ item }}", `f:5:7: job.params.day: "${{ item }}" has an expression`},
		{"day=\x00", `f:5:7: job.params.day: contains a NUL byte`},
		{"day=" + strings.Repeat("1", 1025), `f:5:7: job.params.day: has 1,025 bytes; at most 1 KiB`},
		{"threads=four", `f:6:7: job.params.threads: invalid number "four"; write it like 2 or 0.5`},
		{"threads=1e999999999999999999999", `f:6:7: job.params.threads: invalid number "1e999`},
		{"threads=64.5", `f:6:7: job.params.threads: "64.5" is out of range; write a value from 1 to 64`},
		{"fast=yes", `f:7:7: job.params.fast: invalid boolean "yes"; write true or false`},
		{"limit=61m", `f:8:7: job.params.limit: "61m" is out of range; write at most 1h`},
		{"limit=10", `f:8:7: job.params.limit: "10" has no unit`},
		{"zone=ue", `f:9:7: job.params.zone: unknown value "ue"; did you mean "eu"?`},
		{"thread=4", `f:5:5: job.params: unknown parameter "thread"; did you mean "threads"?`},
		{"color=red", `f:5:5: job.params: unknown parameter "color"; the parameters are day, threads, fast, limit, zone`},
	} {
		name, value, _ := strings.Cut(c.set, "=")
		set := map[string]string{"day": "2026-05-01"}
		set[name] = value
		job, err := Parse("f", []byte(withParams), Options{Params: set})
		if job != nil || err == nil || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.set, err, c.want)
		}
	}
	_, err := Parse("f", []byte("job: {name: n, tasks: [{id: a, run: x}]}"), Options{Params: map[string]string{"day": "x"}})
	if want := `f:1:6: job.params: unknown parameter "day"; declare it: params: `; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("without declarations: got %v, want %s", err, want)
	}
}

func TestOptionsReplaceWhatTheFileSays(t *testing.T) {
	t.Parallel()
	job, err := Parse("f", []byte("job: {labels: {team: data, env: dev}, tasks: [{id: a, run: x}]}"), Options{
		Name: "other", Priority: dtaskv1.Priority_PRIORITY_HIGH, Labels: map[string]string{"env": "prod", "run": "7"},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := job.GetHeader()
	if h.GetName() != "other" || h.GetPriority() != dtaskv1.Priority_PRIORITY_HIGH || fmt.Sprint(h.GetLabels()) != "map[env:prod run:7 team:data]" {
		t.Errorf("got %v", h)
	}
	_, err = Parse("f", []byte("job: {name: n, tasks: [{id: a, run: x}]}"), Options{Name: "a b", Labels: map[string]string{"x y": "", "v": "${{ index }}"}})
	if fs := faultsOf(t, err); len(fs) != 3 {
		t.Errorf("got %v", fs)
	}
}

// A value never changes the structure of a file: whatever it contains, it is what the
// command gets, and the rest of the job stays as it is.
func TestAnyValueIsInsertedAsItIs(t *testing.T) {
	t.Parallel()
	const file = `{"job": {"name": "n", "params": [{"name": "v", "required": true}],
		"tasks": [{"id": "a", "command": ["c", "${{ params.v }}", "<${{ params.v }}>"], "payload": {"v": ["${{params.v}}"]}}]}}`
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringN(0, 50, MaxParamBytes).Draw(t, "value")
		if paramValueProblem(value).bad() {
			return
		}
		job, err := Parse("f.json", []byte(file), Options{Params: map[string]string{"v": value}})
		if err != nil {
			t.Fatal(err)
		}
		w := &jsonWriter{}
		w.text(nil, value)
		body := job.GetTasks()[0].GetBody()
		if c := body.GetCommand(); len(c) != 3 || c[1] != value || c[2] != "<"+value+">" {
			t.Fatalf("got %q", c)
		}
		if got, want := string(body.GetPayload()), `{"v":[`+w.out.String()+`]}`; got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	})
}

func TestAValueDoesNotBecomePartOfAnExpression(t *testing.T) {
	t.Parallel()
	for text, joins := range map[string]bool{
		"${{ params.v }}${{ index }}": true, "${{ params.v }}{{ index }}": true, "$${{ params.v }}${{ index }}": false,
		"${{ params.v }} ${{ index }}": false, "${{ index }}${{ params.v }}": false, "${{ params.v }}${{ params.v }}": false,
	} {
		job, err := Parse("f", fmt.Appendf(nil, "job:\n  name: n\n  params: [{name: v, default: $}]\n  tasks: [{id: a, array: {range: 0-1}, command: [c, '%s']}]\n", text), Options{})
		switch {
		case joins && (err == nil || !strings.Contains(err.Error(), "would become an expression")):
			t.Errorf("%s: got %v, %v", text, job, err)
		case !joins && err != nil:
			t.Errorf("%s: got %v", text, err)
		}
	}
}

func TestInsertedTextIsBounded(t *testing.T) {
	t.Parallel()
	for name, tasks := range map[string]string{
		"expressions": `[{id: a, run: "` + strings.Repeat("${{params.v}}", 70_000) + `"}]`,
		"aliases":     `[{id: a, run: x, payload: [&a [` + strings.Repeat(`"${{params.v}}",`, 100) + "]" + strings.Repeat(", *a", 1000) + "]}]",
	} {
		_, err := Parse("f", []byte("job:\n  name: n\n  params: [{name: v, required: true}]\n  tasks: "+tasks), Options{Params: map[string]string{"v": strings.Repeat("x", MaxParamBytes)}})
		if err == nil || !strings.Contains(err.Error(), "more than 64 MiB") {
			t.Errorf("%s: got %.200v", name, err)
		}
	}
}

func TestDecodedParametersAreChecked(t *testing.T) {
	t.Parallel()
	many := make(map[string]string)
	for i := range MaxParams + 1 {
		many[fmt.Sprint("p", i)] = ""
	}
	for want, params := range map[string]map[string]string{
		`job.params: "a b" contains the character ' '`: {"a b": ""},
		"job.params: a has 1,025 bytes":                {"a": strings.Repeat("x", 1025)},
		"job.params: has 65 entries; at most 64":       many,
	} {
		job, err := Parse("f", []byte("job: {name: n, tasks: [{id: a, run: x}]}"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		job.GetHeader().Params = params
		if fs := Check(job); len(fs) != 1 || !strings.HasPrefix(fs[0].String(), want) {
			t.Errorf("got %v, want %s", fs, want)
		}
	}
}

func TestAFileOfValuesHasTextsNumbersAndBooleans(t *testing.T) {
	t.Parallel()
	got, err := ParseParams("v.yaml", []byte("day: 2026-05-01\nthreads: 1.50\nfast: true\nempty: ''\n"))
	want := map[string]string{"day": "2026-05-01", "threads": "1.50", "fast": "true", "empty": ""}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	_, err = ParseParams("v.yaml", []byte("day: [a]\nday: b\nzone:\n"))
	for i, want := range []string{
		"v.yaml:1:6: day: must be text, a number, true or false, not a list",
		`v.yaml:2:1: file: duplicate key "day"`,
		"v.yaml:3:6: zone: must be text, a number, true or false, not nothing",
	} {
		if fs := faultsOf(t, err); len(fs) != 3 || !strings.HasPrefix(fs[i].String(), want) {
			t.Errorf("got %v, want %s", fs, want)
		}
	}
}

func TestInputsThatNoWorkerReadsAreRefusedAtSubmission(t *testing.T) {
	t.Parallel()
	job := parse(t, "testdata/classic.yaml", Options{})
	c := NewChecker(job.GetHeader(), CheckOptions{Readable: true})
	_ = c.Add(job.GetTasks())
	fs := c.Seal()
	want := `task "map-001": inputs[0]: unsupported scheme in "s3://bucket/input/chunk-001.txt"; workers read and write paths and file:// URLs only`
	if len(fs) != 3 || !strings.HasPrefix(fs[0].String(), want) {
		t.Errorf("got %v, want three faults like %s", fs, want)
	}
	job, err := Parse("f", []byte(`job:
  name: n
  tasks:
    - {id: a, command: [x], inputs: ["file:///in", /in], output: "FILE:///out", stdin: "https://example.org/in"}
    - {id: b, array: {items: [/a, /b]}, command: [x], input: "${{ item }}", output: "gs://bucket/${{ index }}"}
`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	c = NewChecker(job.GetHeader(), CheckOptions{Readable: true})
	_ = c.Add(job.GetTasks())
	if fs := c.Seal(); len(fs) != 2 || !strings.HasPrefix(fs[0].String(), `task "a": stdin: `) || !strings.HasPrefix(fs[1].String(), `task "b": output: `) {
		t.Errorf("got %v, want faults of stdin and output", fs)
	}
}
