package client

import (
	"context"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// SetLimit makes a limit on running tasks and their starts, or replaces one, and returns it. A repeated call
// changes nothing. version is the one that the limit must have, or else the error is
// ErrConflict; 0 = any, or none.
func (c *Client) SetLimit(ctx context.Context, name string, to *dtaskv1.LimitSettings, version uint32) (*dtaskv1.Limit, error) {
	req := &dtaskv1.SetLimitRequest{Name: name, Settings: to, IfVersion: version}
	got, err := call(ctx, c, operation{name: "setting limit " + name}, dtaskv1.LimitServiceClient.SetLimit, req)
	return got.GetLimit(), err
}

// Limits returns all limits by name, with what runs and waits. Of the options, only Stale and
// Fresh matter: a coordinator that does not lead knows no loads.
func (c *Client) Limits(ctx context.Context, opts ReadOptions) ([]*dtaskv1.Limit, error) {
	return c.limits(ctx, "", opts)
}

// Limit returns a limit with its counters, or ErrNotFound.
func (c *Client) Limit(ctx context.Context, name string, opts ReadOptions) (*dtaskv1.Limit, error) {
	list, err := c.limits(ctx, name, opts)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

func (c *Client) limits(ctx context.Context, name string, opts ReadOptions) ([]*dtaskv1.Limit, error) {
	op := operation{name: "listing limits"}
	if name != "" {
		op.name = "reading limit " + name
	}
	got, err := call(ctx, c, op, dtaskv1.LimitServiceClient.ListLimits, &dtaskv1.ListLimitsRequest{Name: name, Consistency: consistency(opts.Stale)})
	report(opts.Fresh, got.GetFreshness())
	return got.GetLimits(), err
}

// DeleteLimit removes a limit. version is the one that it must have; 0 = any. The error is
// ErrConflict if it has another one, or while a job that has not ended, or a schedule, uses
// it. It is ErrNotFound for an unknown limit, also if an attempt of this call whose answer
// was lost has deleted it.
func (c *Client) DeleteLimit(ctx context.Context, name string, version uint32) error {
	_, err := call(ctx, c, operation{name: "deleting limit " + name}, dtaskv1.LimitServiceClient.DeleteLimit, &dtaskv1.DeleteLimitRequest{Name: name, IfVersion: version})
	return err
}
