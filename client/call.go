package client

import (
	"context"
	"iter"

	"google.golang.org/grpc"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// call makes a unary call until it succeeds or fails for good. The caller sets
// the operation's name and, if it differs from Config.TryTimeout, its limit.
func call[S, Q, A any](
	ctx context.Context, c *Client, op operation, method func(S, context.Context, *Q, ...grpc.CallOption) (*A, error), req *Q,
) (*A, error) {
	if op.timeout == 0 {
		op.timeout = c.cfg.TryTimeout
	}
	if r, ok := any(req).(interface{ GetConsistency() dtaskv1.Consistency }); ok {
		op.stale = r.GetConsistency() == dtaskv1.Consistency_CONSISTENCY_STALE
	}
	var got *A
	op.run = func(ctx context.Context, t try) (err error) {
		got, err = method(stub[S](t), ctx, req)
		return err
	}
	if err := c.do(ctx, op); err != nil {
		return nil, err
	}
	return got, nil
}

// stub returns the client of a service for one try.
func stub[S any](t try) S {
	for _, s := range []any{t.jobs(), t.cluster(), t.admin(), t.auth(), t.schedules(), t.queues(), t.limits()} {
		if s, ok := s.(S); ok {
			return s
		}
	}
	panic("client: unknown service")
}

// list iterates over a listing page by page, up to a limit; 0 = no limit. It
// ends with the first error.
func list[A interface{ GetNextPageToken() string }, T any](
	limit int, token string, fetch func(limit uint32, token string) (A, error), elements func(A) []T,
) iter.Seq2[T, error] {
	const maxPage = 1000
	return func(yield func(T, error) bool) {
		for sent, next := 0, token; ; {
			page := uint32(maxPage)
			if left := limit - sent; limit > 0 && left < maxPage {
				page = uint32(left) //nolint:gosec // 1 to 999
			}
			got, err := fetch(page, next)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, x := range elements(got) {
				if !yield(x, nil) {
					return
				}
				if sent++; limit > 0 && sent >= limit {
					return
				}
			}
			if next = got.GetNextPageToken(); next == "" {
				return
			}
		}
	}
}
