package cli

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/user"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// maxBatch is the largest job that --batch and bench make.
const maxBatch = 1_000_000

// specOptions are what a job file does not say. Time-outs and retries that
// nobody set stay open: each coordinator has defaults of its own.
func (a *app) specOptions() spec.Options {
	return spec.Options{Owner: clip(a.owner(), 63), Unfilled: true}
}

// owner is who runs this program; empty if nobody can tell.
func (a *app) owner() string {
	if name := a.getenv("USER"); name != "" {
		return name
	}
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.Username
}

// clip shortens s to n bytes without cutting a character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// readJobs reads files, or standard input for "-", of one or several jobs each. All faults of all files are
// told at once.
func (a *app) readJobs(paths []string) ([]*dtaskv1.JobSpec, error) {
	var (
		jobs   []*dtaskv1.JobSpec
		faults spec.Faults
	)
	for _, path := range paths {
		text, err := a.readFile(path)
		if err != nil {
			return nil, err
		}
		more, err := spec.ParseAll(path, text, a.specOptions())
		if found, ok := errors.AsType[spec.Faults](err); ok {
			faults = append(faults, found...)
		} else if err != nil {
			return nil, err
		}
		jobs = append(jobs, more...)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return jobs, nil
}

func (a *app) readFile(path string) ([]byte, error) {
	in := a.in
	if path != "-" {
		f, err := os.Open(path) //nolint:gosec // the user's own file
		if err != nil {
			return nil, &hintedError{err: &jobFileError{err: err}, hint: "give the path of a job file, or - for standard input"}
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, spec.MaxFileBytes+1)) // spec reports a larger one
	if err != nil {
		return nil, &jobFileError{err: fmt.Errorf("reading %s: %w", path, err)}
	}
	return text, nil
}

// A jobFileError is a job file that cannot be read at all.
type jobFileError struct{ err error }

func (e *jobFileError) Error() string { return e.err.Error() }
func (e *jobFileError) Unwrap() error { return e.err }

// A single is a job that comes from flags rather than from a file.
type single struct {
	kind, payload, priority, name string
	batch                         int
	randomPriority                bool
}

// Of a batch without a type: a prime takes a few milliseconds.
const (
	batchType    = "prime"
	batchPayload = "999999937"
)

// build makes the job: of one task, or of batch equal ones.
func (s single) build(opts spec.Options) (*dtaskv1.JobSpec, error) {
	if s.batch < 0 || s.batch > maxBatch {
		return nil, fmt.Errorf("--batch %d is not from 1 to %d", s.batch, maxBatch)
	}
	if s.randomPriority && s.priority != "" {
		return nil, errors.New("--priority and --random-priority exclude each other")
	}
	if s.kind == "" {
		s.kind = batchType
		if s.payload == "" {
			s.payload = batchPayload
		}
	}
	job, err := spec.Single(spec.SingleTask{
		Type: s.kind, Payload: []byte(s.payload), Priority: s.priority, Name: s.name, Options: opts,
	})
	if err != nil {
		return nil, err
	}
	if s.batch > 0 {
		job.Tasks = repeat(job.GetTasks()[0], s.batch)
	}
	if s.randomPriority {
		randomize(job)
	}
	return job, nil
}

// repeat makes n tasks like t, numbered from 1.
func repeat(t *dtaskv1.TaskSpec, n int) []*dtaskv1.TaskSpec {
	tasks := make([]*dtaskv1.TaskSpec, n)
	width := len(fmt.Sprint(n))
	for i := range tasks {
		// The body is shared: nobody changes it.
		tasks[i] = &dtaskv1.TaskSpec{Id: fmt.Sprintf("%.40s-%0*d", t.GetId(), width, i+1), Policy: t.GetPolicy(), Body: t.GetBody()}
	}
	return tasks
}

// randomize gives each task one of the four priorities.
func randomize(job *dtaskv1.JobSpec) {
	header := job.GetHeader()
	policy := header.GetPolicies()[0]
	header.Policies = nil
	for p := dtaskv1.Priority_PRIORITY_LOW; p <= dtaskv1.Priority_PRIORITY_URGENT; p++ {
		one := proto.CloneOf(policy)
		one.Priority = p
		header.Policies = append(header.GetPolicies(), one)
	}
	for _, t := range job.GetTasks() {
		t.Policy = rand.Uint32N(4) //nolint:gosec // a load, no secret
	}
}
