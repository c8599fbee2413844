package client

import (
	"context"
	"iter"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// MaxNamed is how many tasks one call of Retry or PurgeDeadLetters may name.
const MaxNamed = 10_000

// Retry lets a job go on with tasks that ended without completing, or with all
// of them if none is named; those that were cancelled because of them come back
// too. It returns the job as it is then. Repeating it is harmless while the
// tasks go on. ErrConflict is returned when a task has not ended or has
// completed, depends on one that stays behind, or when there is none to retry.
func (c *Client) Retry(ctx context.Context, job string, tasks []string) (*dtaskv1.Job, error) {
	req := &dtaskv1.RetryRequest{Job: job, Tasks: tasks}
	var got *dtaskv1.RetryResponse
	err := c.do(ctx, operation{
		name: "retrying job " + job, limit: c.cfg.TryTimeout,
		run: func(ctx context.Context, t try) (err error) {
			got, err = t.jobs().Retry(ctx, req)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return got.GetJob(), nil
}

// LetterFilter says which dead letters to list and what of them; empty fields
// mean all.
type LetterFilter struct {
	Job     string // id
	Task    string // only this one of Job
	Type    string // exact
	Limit   int    // how many at most; 0 = no limit
	History bool   // fill DeadLetter.payload and DeadLetter.history
	Stale   bool   // any replica may answer
}

// DeadLetters lists tasks whose retries are used up, those of the newest job
// first, page by page. It ends with the first error.
func (c *Client) DeadLetters(ctx context.Context, f LetterFilter) iter.Seq2[*dtaskv1.DeadLetter, error] {
	const page = 1000
	return func(yield func(*dtaskv1.DeadLetter, error) bool) {
		req := &dtaskv1.ListDeadLettersRequest{
			Job: f.Job, Task: f.Task, Type: f.Type, WithHistory: f.History, Consistency: consistency(f.Stale),
		}
		for sent := 0; ; {
			req.Limit = page
			if left := f.Limit - sent; f.Limit > 0 && left < page {
				req.Limit = uint32(left) //nolint:gosec // 1 to 999
			}
			got, err := c.letterPage(ctx, req)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, letter := range got.GetDeadLetters() {
				if !yield(letter, nil) {
					return
				}
				if sent++; f.Limit > 0 && sent >= f.Limit {
					return
				}
			}
			if req.PageToken = got.GetNextPageToken(); req.GetPageToken() == "" {
				return
			}
		}
	}
}

func (c *Client) letterPage(ctx context.Context, req *dtaskv1.ListDeadLettersRequest) (*dtaskv1.ListDeadLettersResponse, error) {
	var got *dtaskv1.ListDeadLettersResponse
	err := c.do(ctx, operation{
		name: "listing dead letters", limit: c.cfg.TryTimeout, stale: req.GetConsistency() == dtaskv1.Consistency_CONSISTENCY_STALE,
		run: func(ctx context.Context, t try) (err error) {
			got, err = t.jobs().ListDeadLetters(ctx, req)
			return err
		},
	})
	return got, err
}

// PurgeDeadLetters takes tasks of a job out of the dead letters, or all that it
// has there if none is named; they stay in the job as failed. It returns how
// many: after a call whose outcome was unknown and that was repeated, those of
// the repeat alone. ErrConflict is returned when a task is not dead, unless it
// is failed already.
func (c *Client) PurgeDeadLetters(ctx context.Context, job string, tasks []string) (int, error) {
	req := &dtaskv1.PurgeDeadLettersRequest{Job: job, Tasks: tasks}
	var got *dtaskv1.PurgeDeadLettersResponse
	err := c.do(ctx, operation{
		name: "purging dead letters of job " + job, limit: c.cfg.TryTimeout,
		run: func(ctx context.Context, t try) (err error) {
			got, err = t.jobs().PurgeDeadLetters(ctx, req)
			return err
		},
	})
	return int(got.GetPurged()), err
}
