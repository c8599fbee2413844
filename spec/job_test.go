package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// transcript is a job as readable text that stays the same between runs;
// protobuf's own writers add random spaces on purpose.
func transcript(t *testing.T, job *dtaskv1.JobSpec) string {
	t.Helper()
	compact, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err = json.Unmarshal(compact, &v); err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.Write(text)
	b.WriteString("\n")
	for _, task := range job.GetTasks() {
		if p := task.GetBody().GetPayload(); p != nil {
			fmt.Fprintf(&b, "payload of %s: %s\n", task.GetId(), p)
		}
	}
	return b.String()
}

func parse(t *testing.T, path string, opt Options) *dtaskv1.JobSpec {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	job, err := Parse(path, text, opt)
	if err != nil {
		t.Fatal(err)
	}
	if fs := Check(job); fs != nil {
		t.Fatalf("a parsed job does not pass the check: %v", fs)
	}
	return job
}

func TestFilesBecomeJobs(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/jobs/*.[yj]*")
	if err != nil || len(files) < 3 {
		t.Fatalf("found %d files, error %v", len(files), err)
	}
	for _, file := range append(files, "testdata/classic.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			golden(t, strings.TrimSuffix(file, filepath.Ext(file))+".golden", transcript(t, parse(t, file, Options{Owner: "me"})))
		})
	}
}

func TestEveryExampleIsAJob(t *testing.T) {
	t.Parallel()
	files := jobExamples(t)
	if len(files) < 6 {
		t.Fatalf("found %d files", len(files))
	}
	for _, file := range files {
		parse(t, file, Options{})
	}
}

// scheduleExample is the example that has a schedule.
const scheduleExample = "schedule.yaml"

// jobExamples returns the examples that are jobs.
func jobExamples(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(files, func(path string) bool { return filepath.Base(path) == scheduleExample })
}

func TestTheClassicExampleIsTheClassicSample(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff(parse(t, "testdata/classic.yaml", Options{}), parse(t, "../examples/classic.yaml", Options{}), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestAJSONFileIsTheSameJobAsItsYAMLTwin(t *testing.T) {
	t.Parallel()
	for _, file := range jobExamples(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var v map[string]any
		if err = yaml.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		for k := range v { // the JSON form has no anchors
			if strings.HasPrefix(k, "x-") {
				delete(v, k)
			}
		}
		jsonForm, err := json.MarshalIndent(v, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(file+".json", jsonForm, Options{})
		if err != nil {
			t.Fatal(err)
		}
		// Go's maps put the keys of a payload into another order.
		if diff := cmp.Diff(parse(t, file, Options{}), got, protocmp.Transform(),
			protocmp.FilterField(&dtaskv1.TaskBody{}, "payload", cmp.Comparer(sameJSON))); diff != "" {
			t.Errorf("%s: %s", file, diff)
		}
	}
}

func sameJSON(a, b []byte) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return bytes.Equal(a, b)
	}
	return cmp.Equal(x, y)
}

func TestEqualPoliciesAreKeptOnce(t *testing.T) {
	t.Parallel()
	job, err := Parse("f", []byte(`job:
  name: x
  defaults: {timeout: 5m}
  tasks:
    - {id: a, run: x}
    - {id: b, run: y, timeout: 300s, retry: {max: 3}}
    - {id: c, type: map}
    - {id: d, type: map}
    - {id: e, command: [x], kill_grace: 1s}
`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []uint32
	for _, task := range job.GetTasks() {
		got = append(got, task.GetPolicy())
	}
	if diff := cmp.Diff([]uint32{0, 0, 1, 1, 2}, got); diff != "" || len(job.GetHeader().GetPolicies()) != 3 {
		t.Errorf("policies %v: %s", job.GetHeader().GetPolicies(), diff)
	}
}

func TestAPolicyLeftOpenIsFilledByTheCoordinator(t *testing.T) {
	t.Parallel()
	text := []byte("job:\n  name: x\n  tasks: [{id: a, run: x}, {id: b, run: x, timeout: 5s, retry: {max: 1}}]\n")
	retries := uint32(7)
	d := TaskDefaults{Timeout: 90 * time.Second, Retries: &retries}
	open, err := Parse("f", text, Options{Unfilled: true})
	if err != nil {
		t.Fatal(err)
	}
	if p := open.GetHeader().GetPolicies()[0]; p.GetTimeoutMs() != 0 || p.GetRetry() != nil {
		t.Errorf("left open: got %v", p)
	}
	if Check(open) == nil {
		t.Error("a job with open policies passes the check")
	}
	Fill(open.GetHeader(), d)
	filled, err := Parse("f", text, Options{Defaults: d})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(filled, open, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if p := filled.GetHeader().GetPolicies()[0]; p.GetTimeoutMs() != 90_000 || p.GetRetry().GetMax() != 7 {
		t.Errorf("got %v", p)
	}
}

func TestPayloadHasTheBoundThatIsSet(t *testing.T) {
	t.Parallel()
	text := func(n int) []byte {
		return []byte("job:\n  name: x\n  tasks: [{id: a, type: echo, payload: " + strings.Repeat("p", n) + "}]\n")
	}
	for _, c := range []struct {
		set, size int
		ok        bool
	}{
		{0, DefaultPayload, true},
		{0, DefaultPayload + 1, false},
		{10, 10, true},
		{10, 11, false},
		{1 << 30, MaxPayload, true},
		{1 << 30, MaxPayload + 1, false},
	} {
		if _, err := Parse("f", text(c.size), Options{MaxPayload: c.set}); (err == nil) != c.ok {
			t.Errorf("set %d, size %d: got %.100v", c.set, c.size, err)
		}
	}
}

func TestOneTaskNeedsNoFile(t *testing.T) {
	t.Parallel()
	job, err := Single(SingleTask{Type: "prime", Payload: []byte("999999937"), Priority: "high", Options: Options{Owner: "me"}})
	if err != nil {
		t.Fatal(err)
	}
	if fs := Check(job); fs != nil {
		t.Fatal(fs)
	}
	file, err := Parse("f", []byte("job: {name: prime, priority: high, tasks: [{id: prime, type: prime, payload: 999999937}]}"), Options{Owner: "me"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(file, job, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestACommandNeedsNoFile(t *testing.T) {
	t.Parallel()
	retries := uint32(0)
	job, err := Single(SingleTask{
		Command: []string{"render", "--frame", "${{ index }}", "no"}, Name: "sweep", ID: "run", Array: "0-99", Cwd: "/srv/${{ index }}",
		Env: map[string]string{"B": "1", "A": "${{ item }}"}, Labels: map[string]string{"team": "data"},
		Resources: map[string]string{"cpu": "0.5", "memory": "64MiB", "gpu": "2"}, Timeout: 90 * time.Second, Retries: &retries,
		Options: Options{Owner: "me", Unfilled: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	file, err := Parse("f", []byte(`job:
  name: sweep
  labels: {team: data}
  tasks:
    - id: run
      command: [render, --frame, "${{ index }}", "no"]
      array: {range: 0-99}
      cwd: /srv/${{ index }}
      env: {A: "${{ item }}", B: "1"}
      resources: {cpu: 0.5, memory: 64MiB, gpu: 2}
      timeout: 90s
      retry: {max: 0}
`), Options{Owner: "me", Unfilled: true})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(file, job, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestFaultsOfOneTaskNameItsFields(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", MaxPathBytes+1)
	for where, task := range map[string]SingleTask{
		"type":            {Type: "a b"},
		"payload":         {Type: "noop", Payload: make([]byte, DefaultPayload+1)},
		"name":            {Type: "noop", Name: "a b"},
		"id":              {Type: "noop", ID: "a/b"},
		"priority":        {Type: "noop", Priority: "hgh"},
		"command[1]":      {Command: []string{"echo", "\xff"}},
		"command":         {Command: []string{"echo", "${{ index }}"}},
		"array.range":     {Command: []string{"echo"}, Array: "9-0"},
		"array":           {Command: []string{"echo"}, Array: "0-1000000"},
		"cwd":             {Command: []string{"echo"}, Cwd: "/" + long},
		"env":             {Command: []string{"echo"}, Env: map[string]string{"A=B": "x"}},
		"env.A":           {Command: []string{"echo"}, Env: map[string]string{"A": "\xff"}},
		"labels.team":     {Command: []string{"echo"}, Labels: map[string]string{"team": "\n"}},
		"resources.cpu":   {Command: []string{"echo"}, Resources: map[string]string{"cpu": "much"}},
		"resources.gpu":   {Command: []string{"echo"}, Resources: map[string]string{"gpu": "-1"}},
		"resources":       {Command: []string{"echo"}, Resources: map[string]string{"a b": "1"}},
		"retry.max":       {Command: []string{"echo"}, Retries: new(uint32(math.MaxUint32))},
		"timeout":         {Command: []string{"echo"}, Timeout: MaxDuration + time.Hour},
		"resources.disk":  {Command: []string{"echo"}, Resources: map[string]string{"disk": "1e9"}},
		"resources.slots": {Command: []string{"echo"}, Resources: map[string]string{"slots": "inf"}},
	} {
		if task.Type == "" {
			task.Name, task.ID = "x", "run"
		}
		_, err := Single(task)
		got := faultsOf(t, err)
		if len(got) != 1 || got[0].Where != where || got[0].Line != 0 {
			t.Errorf("want a fault of %s, got %v", where, got)
		}
	}
}

func TestThePayloadOfOneTaskIsPassedOnAsItIs(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{"\xff\x00", "${{ index }}", "$${{", "{n: 1}"} {
		job, err := Single(SingleTask{Type: "echo", Payload: []byte(payload)})
		if err != nil {
			t.Fatal(err)
		}
		if got := string(job.GetTasks()[0].GetBody().GetPayload()); got != payload {
			t.Errorf("got %q, want %q", got, payload)
		}
	}
}

func TestAPriorityIsANameOrANumber(t *testing.T) {
	t.Parallel()
	const file = "job: {name: x, priority: %s, tasks: [{id: a, run: x, priority: %s}]}"
	for number, name := range []string{"low", "normal", "high", "urgent"} {
		want, err := Parse("f", fmt.Appendf(nil, file, name, name), Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse("f", fmt.Appendf(nil, file, strconv.Itoa(number), strconv.Quote(strconv.Itoa(number))), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s and %d differ: %s", name, number, diff)
		}
	}
}

func TestOneTaskIsHeldToTheSameRules(t *testing.T) {
	t.Parallel()
	_, err := Single(SingleTask{Priority: "hgh", Name: "a b", ID: "a/b", Payload: make([]byte, DefaultPayload+1), Options: Options{Owner: "\n"}})
	if got := faultsOf(t, err); len(got) != 6 {
		t.Errorf("got %v", got)
	}
	if _, err = Single(SingleTask{Type: "noop"}); err != nil {
		t.Error(err)
	}
}

func TestALargeFileIsRead(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("job:\n  name: x\n  tasks:\n")
	for i := range MaxListedTasks {
		fmt.Fprintf(&b, "  - {id: t%d, command: [echo, \"%d\"], payload: {n: %d}", i, i, i)
		if i > 0 {
			fmt.Fprintf(&b, ", needs: [t%d]", i-1)
		}
		b.WriteString("}\n")
	}
	job, err := Parse("f", []byte(b.String()), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := Levels(job); len(got) != MaxListedTasks {
		t.Errorf("got %d levels", len(got))
	}
	if proto.Size(job) == 0 || len(job.GetHeader().GetPolicies()) != 1 {
		t.Errorf("got %d policies", len(job.GetHeader().GetPolicies()))
	}
}
