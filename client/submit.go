package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/internal/array"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// maxKeyBytes is the longest idempotency key.
	maxKeyBytes = 128
	// maxTasks is how many tasks a job may have.
	maxTasks = 1_000_000
	// maxInFlight is how many jobs of one SubmitMany are in flight. Coordinators
	// read no further jobs of a connection while as many are pending.
	maxInFlight = 1000
	// submitTimeout is how long a submission may make no progress at a coordinator
	// that responds to pings.
	submitTimeout = 10 * time.Second
)

// SubmitOptions are optional parameters of a submission.
type SubmitOptions struct {
	// Key is the idempotency key, 1–128 bytes: submitting the same job with the
	// same key again within 24 hours returns the stored job. If it is empty, a key
	// is generated, which covers the retries of this call.
	Key string
	// RerunOf is the ID of a job that is the run of a schedule: the new job gets the tick of
	// that run, as its tasks see it, and does not count as a run of the schedule. Empty:
	// none. The error is ErrNotFound if the job is unknown or expired.
	RerunOf string
}

// Submitted describes a stored job.
type Submitted struct {
	ID      string // of the job
	Existed bool   // an earlier submission with this key stored it
	Index   uint64 // log index at which the job exists
	Key     string // idempotency key that was used
}

// A Submission is a job for SubmitMany.
type Submission struct {
	Job  *dtaskv1.JobSpec
	Spec *JobSpec // a job that was read; excludes Job
	SubmitOptions
}

// SubmitResult is the outcome of one job of SubmitMany.
type SubmitResult struct {
	Submitted
	Err error // as returned by Submit; nil: the job is stored
}

// Submit stores a job: when it returns, the job is in the log of a majority of
// coordinators. It retries with the same key through failures and elections.
// The job must not be changed during the call. If the error is ErrUnreachable,
// the job may have been stored (Error.Unknown); submitting it again with
// Error.Key is safe.
//
// Jobs that many goroutines submit at the same time share messages.
func (c *Client) Submit(ctx context.Context, job *dtaskv1.JobSpec, opts SubmitOptions) (Submitted, error) {
	return c.submitOne(ctx, Submission{Job: job, SubmitOptions: opts})
}

// SubmitSpec is Submit for a job that was read with Client.JobSpec.
func (c *Client) SubmitSpec(ctx context.Context, job *JobSpec, opts SubmitOptions) (Submitted, error) {
	return c.submitOne(ctx, Submission{Spec: job, SubmitOptions: opts})
}

func (c *Client) submitOne(ctx context.Context, s Submission) (Submitted, error) {
	var results [1]SubmitResult
	c.submitGroup(ctx, []Submission{s}, results[:])
	if results[0].Err != nil {
		return Submitted{}, results[0].Err
	}
	return results[0].Submitted, nil
}

// SubmitMany stores jobs independently of each other and returns one result
// for each, in order. It is much faster than one Submit after another. Like
// Submit, it retries each job that was not stored for a temporary reason.
func (c *Client) SubmitMany(ctx context.Context, jobs []Submission) []SubmitResult {
	results := make([]SubmitResult, len(jobs))
	for first := 0; first < len(jobs); first += maxInFlight {
		end := min(first+maxInFlight, len(jobs))
		c.submitGroup(ctx, jobs[first:end], results[first:end])
	}
	return results
}

// submitting is the operation's name in errors.
const submitting = "submitting the job"

func (c *Client) submitGroup(ctx context.Context, jobs []Submission, results []SubmitResult) {
	b := &submitBatch{left: make([]*upload, 0, len(jobs))}
	for i, j := range jobs {
		u, err := newUpload(j, &results[i])
		if err != nil {
			results[i].Err = err
			continue
		}
		b.left = append(b.left, u)
	}
	if len(b.left) == 0 {
		return
	}
	name := submitting
	if len(jobs) > 1 {
		name = fmt.Sprintf("submitting %d jobs", len(b.left))
	}
	err := c.do(ctx, operation{name: name, guarded: true, run: func(ctx context.Context, t try) error { return b.try(ctx, c, t) }})
	for _, u := range b.left {
		u.result.Err = withKey(err, u.result.Key)
	}
}

// withKey adds a job's key to an error after which the job may be submitted
// again.
func withKey(err error, key string) error {
	if e, ok := err.(*Error); ok && (e.Kind == ErrUnreachable || e.Kind == ErrBusy || e.Kind == ErrForeignCluster) { //nolint:errorlint // those of do, which are not wrapped
		with := *e
		with.Key = key
		return &with
	}
	return err
}

// newUpload checks a submission before anything is sent.
func newUpload(s Submission, result *SubmitResult) (*upload, error) {
	u := &upload{job: s.Job, spec: s.Spec, rerunOf: s.RerunOf, generated: s.Key == "", result: result}
	if result.Key = s.Key; u.generated {
		result.Key = newKey()
	}
	if err := checkKey(s.Key); err != nil {
		return nil, err
	}
	if u.spec != nil {
		u.total = u.spec.total
		return u, nil
	}
	total, err := countTasks(s.Job)
	u.total = total
	return u, err
}

// countTasks returns how many tasks a job has, including those of its arrays.
func countTasks(job *dtaskv1.JobSpec) (uint32, error) {
	n := uint64(0)
	for _, t := range job.GetTasks() {
		n += min(array.Tasks(t), maxTasks+1)
	}
	if n == 0 || n > maxTasks {
		return 0, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("invalid number of tasks %d; must be 1 to %d", n, maxTasks)}
	}
	return uint32(n), nil
}

// fillKey checks the idempotency key of a request, and generates one if it is
// empty.
func fillKey(key *string, generated *bool) error {
	if *key == "" {
		*key, *generated = newKey(), true
	}
	return checkKey(*key)
}

func checkKey(key string) error {
	if len(key) > maxKeyBytes {
		return &Error{Kind: ErrInvalid, Message: fmt.Sprintf("invalid idempotency key: has %d bytes; must have at most %d", len(key), maxKeyBytes)}
	}
	return nil
}

// newKey returns an idempotency key of 128 random bits.
func newKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// A submitBatch is the jobs of one call that have no final result. It is on
// one stream at a time, whose mutex guards the fields that change during a
// try.
type submitBatch struct {
	left []*upload

	done    chan struct{} // closed when no job of the try is in flight
	pending int           // jobs in flight
	unsent  int           // jobs of which parts have not been sent
	sent    bool          // some part was sent
	active  time.Time     // when a part was sent or a result arrived
	err     error         // why the stream ended; nil: it has not
}

// try submits the jobs to one coordinator. Those that another try may store
// remain in left; the error is that of one of them.
func (b *submitBatch) try(ctx context.Context, c *Client, t try) error {
	b.done, b.pending, b.unsent, b.sent, b.active, b.err = make(chan struct{}), 0, 0, false, time.Now(), nil
	for _, u := range b.left {
		u.start(b)
	}
	err := c.exchange(ctx, t.conn, b)
	left := b.left[:0]
	for _, u := range b.left {
		again := u.finish(err)
		if again == nil {
			continue
		}
		left = append(left, u)
		if err == nil || u.answer != nil {
			err = again
		}
	}
	b.left = left
	if len(left) == 0 {
		return nil
	}
	return err
}

// exchange has the jobs of a batch sent on the stream of a connection and
// waits for their results.
func (c *Client) exchange(ctx context.Context, conn *grpc.ClientConn, b *submitBatch) error {
	var s *submitStream
	for added := false; !added; added = s.add(b) { //nolint:contextcheck // the stream outlives the call
		var err error
		if s, err = c.submitStream(conn); err != nil { //nolint:contextcheck // as above
			return err
		}
	}
	idle := time.NewTimer(submitTimeout)
	defer idle.Stop()
	for {
		select {
		case <-b.done:
			s.release(b)
			return b.err
		case <-ctx.Done():
			return s.abandon(b, status.FromContextError(ctx.Err()))
		case <-idle.C:
			rest := s.idleUntil(b)
			if rest <= 0 {
				return s.abandon(b, status.New(codes.DeadlineExceeded, fmt.Sprintf("no progress for %s", submitTimeout)))
			}
			idle.Reset(rest)
		}
	}
}

// An upload is one job of a submitBatch.
type upload struct {
	job       *dtaskv1.JobSpec
	spec      *JobSpec // instead of job
	rerunOf   string   // ID of a job; empty: none
	generated bool     // the key
	total     uint32
	result    *SubmitResult

	// Of the present try. The mutex of the stream guards batch, number and answer,
	// and submitStream.packing the others.
	batch  *submitBatch
	number uint64 // in the stream
	answer *dtaskv1.SubmitResult
	parts  jobParts
	part   *dtaskv1.JobPart   // the next one
	header *dtaskv1.JobHeader // of part, even if it goes without
	size   int                // of part
	failed error              // why the job can't be sent
}

// start prepares the first part for a new try.
func (u *upload) start(b *submitBatch) {
	u.batch, u.answer, u.failed = b, nil, nil
	head := &dtaskv1.JobPart{Header: u.job.GetHeader(), IdempotencyKey: u.result.Key, GeneratedKey: u.generated, Total: u.total, RerunOf: u.rerunOf}
	if u.spec != nil {
		head.Header = u.spec.header
		u.parts = jobParts{head: head, spec: u.spec}
	} else {
		u.parts = newJobParts(u.job, head)
	}
	u.advance()
}

// advance makes the next part.
func (u *upload) advance() { u.part, u.size, u.failed = u.parts.next() }

// finish takes the outcome of a try, which ended with err. It returns nil if
// the job has its final result, and why it must be submitted again otherwise.
func (u *upload) finish(err error) error {
	switch {
	case u.failed != nil:
		u.result.Err = u.failed
		return nil //nolint:nilerr // the job has its result
	case u.answer == nil:
		return err
	case u.answer.GetStored() != nil:
		got := u.answer.GetStored()
		u.result.Submitted = Submitted{ID: got.GetId(), Existed: got.GetExisted(), Index: got.GetIndex(), Key: u.result.Key}
		return nil
	}
	again := errorOf(u.answer)
	j := classify(again)
	if j.next != fail {
		return again
	}
	u.result.Err = &Error{Kind: j.kind, Message: submitting + ": " + j.message, Faults: j.faults, Unknown: j.unknown}
	return nil
}

// errorOf returns a job's error as if it had ended the call.
func errorOf(r *dtaskv1.SubmitResult) error {
	st := status.New(codes.Code(r.GetCode()), r.GetMessage()) //nolint:gosec // a status code
	if r.GetDetail() != nil {
		if with, err := st.WithDetails(r.GetDetail()); err == nil {
			st = with
		}
	}
	if st.Code() == codes.OK {
		return errors.New("result has neither a job nor an error")
	}
	return st.Err()
}
