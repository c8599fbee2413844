package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/internal/array"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// chunkBytes is the size of a message of a submission; coordinators take
	// up to 1 MiB.
	chunkBytes = 512 << 10
	// smallBytes is the most that a job has in a call of one message.
	smallBytes = chunkBytes / 4
	// maxKeyBytes is the longest idempotency key.
	maxKeyBytes = 128
	// submitLimit is how long a submission may make no progress at all at one
	// coordinator that is alive.
	submitLimit = 10 * time.Second
)

// SubmitOptions are what is said of a submission beside the job.
type SubmitOptions struct {
	// Key is the idempotency key, 1–128 bytes: the same key with the same job
	// makes one job, however often and by whom it is submitted within 24 hours.
	// Empty: one is made, which covers the repeats of this call.
	Key string
}

// Submitted tells of a job that is stored.
type Submitted struct {
	ID      string // of the job
	Existed bool   // an earlier call with this key had stored it
	Index   uint64 // log index at which the job exists
	Key     string // the key that was used
}

// Submit stores a job: when it returns, the job is in the log of a majority of
// coordinators. It repeats with one key through failures and elections. The job
// must not be changed meanwhile. With ErrUnreachable the job may have been
// stored (Error.Unknown): submitting again with Error.Key is safe.
func (c *Client) Submit(ctx context.Context, job *dtaskv1.JobSpec, opts SubmitOptions) (Submitted, error) {
	if len(job.GetTasks()) <= jointTasks || looksSmall(job) {
		p, err := request(Submission{Job: job, SubmitOptions: opts})
		if err != nil {
			return Submitted{}, err
		}
		if p.r != nil {
			r := c.small(ctx, p, len(job.GetTasks()))
			return r.Submitted, r.Err
		}
	}
	return c.submitLarge(ctx, job, opts)
}

// looksSmall guesses by the first of its tasks whether a job goes in a call of one message, so that
// hardly any is made into a message that is not sent.
func looksSmall(job *dtaskv1.JobSpec) bool {
	return len(job.GetTasks())*(proto.Size(job.GetTasks()[0])+framingBytes) <= smallBytes
}

// small submits a job that goes in one message. Those of many tasks need no company.
func (c *Client) small(ctx context.Context, p place, tasks int) SubmitResult {
	if tasks <= jointTasks {
		return c.share(ctx, p)
	}
	return c.alone(ctx, p)
}

// submitLarge submits a job that may take many messages.
func (c *Client) submitLarge(ctx context.Context, job *dtaskv1.JobSpec, opts SubmitOptions) (Submitted, error) {
	first, err := firstRequest(job, opts)
	if err != nil {
		return Submitted{}, err
	}
	tasks := inParts(job.GetTasks())
	return c.sendAll(ctx, first.GetIdempotencyKey(), 0, func(ctx context.Context, t try) (*dtaskv1.SubmitResponse, error) {
		return sendMessages(ctx, t, requests(first, tasks))
	})
}

// submitting is what a submission does, in the words of its errors.
const submitting = "submitting the job"

// sendAll sends a submission until it has its answer; limit is that of each call, 0 for none.
func (c *Client) sendAll(ctx context.Context, key string, limit time.Duration, send func(context.Context, try) (*dtaskv1.SubmitResponse, error)) (Submitted, error) {
	var got *dtaskv1.SubmitResponse
	err := c.do(ctx, operation{name: submitting, key: key, limit: limit, run: func(ctx context.Context, t try) (err error) {
		got, err = send(ctx, t)
		return err
	}})
	if err != nil {
		return Submitted{}, err
	}
	return Submitted{ID: got.GetId(), Existed: got.GetExisted(), Index: got.GetIndex(), Key: key}, nil
}

// firstRequest is the first message of a submission, without tasks.
func firstRequest(job *dtaskv1.JobSpec, opts SubmitOptions) (*dtaskv1.SubmitRequest, error) {
	first := &dtaskv1.SubmitRequest{Header: job.GetHeader(), IdempotencyKey: opts.Key}
	if len(opts.Key) > maxKeyBytes {
		return nil, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("idempotency key has %d bytes; at most %d are allowed", len(opts.Key), maxKeyBytes)}
	}
	if opts.Key == "" {
		first.IdempotencyKey, first.GeneratedKey = newKey(), true
	}
	var err error
	first.Total, err = countTasks(job)
	return first, err
}

// sendMessages sends one whole submission to one coordinator.
func sendMessages(ctx context.Context, t try, messages iter.Seq2[*dtaskv1.SubmitRequest, error]) (*dtaskv1.SubmitResponse, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := status.Errorf(codes.DeadlineExceeded, "took nothing for %s", submitLimit)
	idle := time.AfterFunc(submitLimit, func() { cancel(stalled) })
	defer idle.Stop()

	stream, err := t.jobs().Submit(ctx)
	if err != nil {
		return nil, err
	}
	for m, err := range messages {
		if err != nil {
			return nil, err
		}
		if err = stream.Send(m); errors.Is(err, io.EOF) {
			break // the answer says why
		} else if err != nil {
			return nil, err
		}
		idle.Reset(submitLimit)
	}
	r, err := stream.CloseAndRecv()
	if err != nil && context.Cause(ctx) == stalled { //nolint:errorlint // this very value
		return nil, stalled
	}
	return r, err
}

// inParts cuts arrays whose items do not fit into a message.
func inParts(tasks []*dtaskv1.TaskSpec) []*dtaskv1.TaskSpec {
	if !slices.ContainsFunc(tasks, func(t *dtaskv1.TaskSpec) bool { return len(t.GetArray().GetItems()) > 0 }) {
		return tasks
	}
	out := make([]*dtaskv1.TaskSpec, 0, len(tasks))
	for _, t := range tasks {
		items := t.GetArray().GetItems()
		first := partEnd(items, int(array.Chunk(t.GetArray()))) //nolint:gosec // 32 bits
		if first == len(items) {
			out = append(out, t)
			continue
		}
		head := proto.CloneOf(&dtaskv1.TaskSpec{Id: t.GetId(), Policy: t.GetPolicy(), Dependencies: t.GetDependencies(), Body: t.GetBody()})
		head.Array = &dtaskv1.ArraySpec{
			Items: items[:first], ItemsTotal: uint32(len(items)), MaxParallel: t.GetArray().GetMaxParallel(), //nolint:gosec // at most a million
			Chunk: t.GetArray().GetChunk(), JsonPayload: t.GetArray().GetJsonPayload(),
		}
		out = append(out, head)
		items = items[first:]
		for part := uint32(1); len(items) > 0; part++ {
			n := partEnd(items, int(array.Chunk(t.GetArray()))) //nolint:gosec // 32 bits
			out = append(out, &dtaskv1.TaskSpec{Id: t.GetId(), Array: &dtaskv1.ArraySpec{Items: items[:n], Part: part}})
			items = items[n:]
		}
	}
	return out
}

// partEnd is how many items make a part: a multiple of chunk, or all.
func partEnd(items [][]byte, chunk int) int {
	const framing = 4
	n, size := 0, 0
	for n < len(items) && size < chunkBytes/2 {
		for range min(chunk, len(items)-n) {
			size += len(items[n]) + framing
			n++
		}
	}
	return n
}

func countTasks(job *dtaskv1.JobSpec) (uint32, error) {
	const most = 1_000_000
	n := uint64(0)
	for _, t := range job.GetTasks() {
		n += min(array.Tasks(t), most+1)
	}
	if n == 0 || n > most {
		return 0, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("job has %d tasks; 1 to %d are allowed", n, most)}
	}
	return uint32(n), nil //nolint:gosec // at most a million
}

// newKey makes an idempotency key of 128 random bits.
func newKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
