package api

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// inJobFiles are lines of a job file that give fields of a header a value other than
// their default. Fields without a rule need none: see jobFileLine.
var inJobFiles = map[protoreflect.Name]string{
	"start_after_ms": "start_after: 3s",
	"name":           "name: nightly",
	"namespace":      "namespace: etl",
	"priority":       "priority: high",
	"env":            "env: {A: b}",
	"labels":         "labels: {team: data}",
	"on_failure":     "on_failure: continue",
	"needs":          "needs: [1]",
	"params":         "params: [{name: day, default: monday}]",
	"policies":       "defaults: {timeout: 7m}",
	"concurrency":    "concurrency: {key: deploy, overlap: wait}",
	"start_at_ms":    "start_at: 2000-01-01T08:00:00+01:00",
	"webhook":        `webhook: "https://example.org/ended"`,
	"queue":          "queue: default",
}

// notInJobs are the fields of a header that the status of a job doesn't show. The
// environment may contain secrets.
var notInJobs = map[protoreflect.Name]bool{"env": true, "deadline_ms": true, "on_failure": true, "policies": true, "webhook": true}

// setByCoordinators are the fields of a header that no job file sets.
var setByCoordinators = map[protoreflect.Name]bool{"run": true}

// jobFileLine sets a field of a header in a job file.
func jobFileLine(t *testing.T, f protoreflect.FieldDescriptor) string {
	t.Helper()
	if line, known := inJobFiles[f.Name()]; known {
		return line
	}
	name, duration := strings.CutSuffix(string(f.Name()), "_ms")
	switch kind := f.Kind(); {
	case f.Cardinality() == protoreflect.Repeated:
	case kind == protoreflect.StringKind:
		return name + ": value of " + name
	case kind == protoreflect.Int64Kind && duration:
		return name + ": 7s"
	case kind == protoreflect.Uint32Kind:
		return name + ": 7"
	case kind == protoreflect.BoolKind:
		return name + ": true"
	}
	t.Fatalf("add a line to inJobFiles for %s", f.FullName())
	return ""
}

func parseJob(t *testing.T, lines ...string) *dtaskv1.JobSpec {
	t.Helper()
	job, err := spec.Parse("job.yaml", []byte("job:\n  "+strings.Join(lines, "\n  ")+"\n  tasks: [{id: a, run: echo}]\n"), spec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func printed(t *testing.T, j *dtaskv1.Job) []byte {
	t.Helper()
	text, err := document.Marshal(document.NewJob(j))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Every field of a header is read from a job file, stored, shown in the status of the
// job and printed, unless it is listed above.
func TestEveryJobFieldIsCarriedFromTheFileToTheDocument(t *testing.T) {
	t.Parallel()
	fields := (*dtaskv1.JobHeader)(nil).ProtoReflect().Descriptor().Fields()
	var lines []string
	for i := range fields.Len() {
		line := ""
		if f := fields.Get(i); !setByCoordinators[f.Name()] {
			line = jobFileLine(t, f)
		}
		lines = append(lines, line)
	}
	plain, written := parseJob(t, "name: x").GetHeader().ProtoReflect(), parseJob(t, lines...)
	r := setup(t)
	r.leader.op(t, &fsm.SetLevel{Level: fsm.MaxLevel})
	r.submit(t, "needed", task("a"))
	if _, err := r.send(t.Context(), request("k", written.GetHeader(), written.GetTasks()...)); err != nil {
		t.Fatal(err)
	}
	job, err := r.get(t, "2", linearizable)
	if err != nil {
		t.Fatal(err)
	}
	for i := range fields.Len() {
		f, header := fields.Get(i), written.GetHeader().ProtoReflect()
		if setByCoordinators[f.Name()] {
			continue
		}
		if header.Get(f).Equal(plain.Get(f)) {
			t.Errorf("%s is not read from the line %q", f.FullName(), lines[i])
		}
		shown := job.ProtoReflect().Descriptor().Fields().ByName(f.Name())
		if omitted := notInJobs[f.Name()]; omitted != (shown == nil) {
			t.Errorf("%s: in dtask.v1.Job = %t, listed as omitted = %t", f.FullName(), shown != nil, omitted)
		}
		if shown == nil {
			continue
		}
		if got, want := job.ProtoReflect().Get(shown), header.Get(f); !got.Equal(want) {
			t.Errorf("%s: got %v in the job, want %v", f.FullName(), got, want)
		}
		partial := proto.Clone(job).(*dtaskv1.Job)
		partial.ProtoReflect().Clear(shown)
		if bytes.Equal(printed(t, job), printed(t, partial)) {
			t.Errorf("%s is not in the document", f.FullName())
		}
	}
}
