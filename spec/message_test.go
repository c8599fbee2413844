package spec

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestAnyAcceptedJobIsWrittenAndReadAsAMessage(t *testing.T) {
	t.Parallel()
	plain := func() *dtaskv1.JobSpec {
		job, err := Parse("job.yaml", []byte(`job: {name: a, labels: {k: "é"}, env: {X: "1"}, tasks: [{id: hello, run: echo}, {id: many, run: "echo ${{ item }}", array: {items: [1, "two"]}}]}`), Options{Owner: "alice"})
		if err != nil {
			t.Fatal(err)
		}
		return job
	}
	binary, large := plain(), plain()
	binary.Tasks[0].Body.Payload = []byte{0, 0xff, 0xfe, '\n'}
	for i := range 100_000 {
		large.Tasks = append(large.Tasks, &dtaskv1.TaskSpec{Id: fmt.Sprint("t", i), Body: &dtaskv1.TaskBody{Run: strings.Repeat("x", 200)}, Dependencies: []uint32{0}})
	}
	for name, job := range map[string]*dtaskv1.JobSpec{"plain": plain(), "binary payload": binary, "100,000 tasks": large} {
		text, err := FormatMessage(job)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseMessage("job.jobspec.json", text)
		if err != nil || !proto.Equal(job, again) {
			t.Errorf("%s: read again, the job differs, or: %v", name, err)
		}
	}
	if text, err := FormatMessage(large); err != nil || len(text) <= MaxFileBytes {
		t.Errorf("the large job has only %d bytes, %v: a job file could have it", len(text), err)
	}
}

func TestAMessageThatIsNoJobIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"job: {name: a}":            "is not a dtask.v1.JobSpec in JSON",
		`{"job": {"name": "a"}}`:    `unknown field "job"`,
		`{"header": {"name": "a"}}`: "x.jobspec.json:1:1: job.",
	} {
		if _, err := ParseMessage("x.jobspec.json", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
