package spec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Format itself compares what it wrote, as it is read again, with the job.
func TestAJobIsWrittenAsTheFileThatItWasReadFrom(t *testing.T) {
	t.Parallel()
	var files []string
	for _, pattern := range []string{"../examples/*.yaml", "testdata/jobs/*.yaml", "testdata/jobs/*.json", "testdata/*.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	for _, path := range files {
		if filepath.Base(path) == scheduleExample {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		job, err := Parse(path, text, Options{Owner: "alice"})
		if err != nil {
			t.Fatal(err)
		}
		out, err := Format(job)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		again, err := Parse(path, out, Options{Owner: "bob"})
		if err != nil {
			t.Errorf("%s: %v\n%s", path, err, out)
		} else if d := differs(job, again); d != "" {
			t.Errorf("%s: %s differs:\n%s", path, d, out)
		}
	}
}

func TestAJobThatNoFileHasIsNotWritten(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*dtaskv1.JobSpec){
		"payload is binary": func(j *dtaskv1.JobSpec) { j.Tasks[0].Body.Payload = []byte{0xff} },
		"resources.memory":  func(j *dtaskv1.JobSpec) { j.Header.Policies[0].Resources = map[string]int64{"memory": 500} },
		"unknown policy":    func(j *dtaskv1.JobSpec) { j.Tasks[0].Policy = 7 },
		"name":              func(j *dtaskv1.JobSpec) { j.Header.Name = "no name" },
		"the header would":  func(j *dtaskv1.JobSpec) { j.Header.OnFailure = 0 },
	} {
		job, err := Parse("job.yaml", []byte("job: {name: a, tasks: [{id: hello, run: echo}]}"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		change(job)
		if out, err := Format(job); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, %v, want %q", out, err, want)
		}
	}
}
