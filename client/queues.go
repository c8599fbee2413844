package client

import (
	"context"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// SetQueue makes a queue, or replaces the settings of one, and returns it. It stays paused if
// it is. A repeated call changes nothing. version is the one that the queue must have, or
// else the error is ErrConflict; 0 = any, or none. The error is ErrInvalid for settings that
// the cluster does not accept.
func (c *Client) SetQueue(ctx context.Context, name string, to *dtaskv1.QueueSettings, version uint32) (*dtaskv1.Queue, error) {
	req := &dtaskv1.SetQueueRequest{Name: name, Settings: to, IfVersion: version}
	got, err := call(ctx, c, operation{name: "setting queue " + name}, dtaskv1.QueueServiceClient.SetQueue, req)
	return got.GetQueue(), err
}

// Queues returns all queues by name, with what waits and runs in them. Of the options, only
// Stale and Fresh matter: a coordinator that does not lead knows no loads.
func (c *Client) Queues(ctx context.Context, opts ReadOptions) ([]*dtaskv1.Queue, error) {
	return c.queues(ctx, "", opts)
}

// Queue returns a queue as Queues does, or ErrNotFound.
func (c *Client) Queue(ctx context.Context, name string, opts ReadOptions) (*dtaskv1.Queue, error) {
	list, err := c.queues(ctx, name, opts)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

func (c *Client) queues(ctx context.Context, name string, opts ReadOptions) ([]*dtaskv1.Queue, error) {
	op := operation{name: "listing queues"}
	if name != "" {
		op.name = "reading queue " + name
	}
	got, err := call(ctx, c, op, dtaskv1.QueueServiceClient.ListQueues, &dtaskv1.ListQueuesRequest{Name: name, Consistency: consistency(opts.Stale)})
	report(opts.Fresh, got.GetFreshness())
	return got.GetQueues(), err
}

// PauseQueue lets nothing of a queue start, for a reason of at most 256 bytes. Running tasks
// continue. already reports whether it was paused before: it keeps its reason then. The
// error is ErrNotFound for an unknown queue.
func (c *Client) PauseQueue(ctx context.Context, name, reason string) (q *dtaskv1.Queue, already bool, err error) {
	got, err := call(ctx, c, operation{name: "pausing queue " + name}, dtaskv1.QueueServiceClient.PauseQueue, &dtaskv1.PauseQueueRequest{Name: name, Reason: reason})
	return got.GetQueue(), got.GetAlready(), err
}

// ResumeQueue lets the tasks of a queue start again. already reports whether it was not
// paused. The error is ErrNotFound for an unknown queue.
func (c *Client) ResumeQueue(ctx context.Context, name string) (q *dtaskv1.Queue, already bool, err error) {
	got, err := call(ctx, c, operation{name: "resuming queue " + name}, dtaskv1.QueueServiceClient.ResumeQueue, &dtaskv1.ResumeQueueRequest{Name: name})
	return got.GetQueue(), got.GetAlready(), err
}

// DeleteQueue removes a queue; the queue default returns to its initial settings. version is
// the one that it must have; 0 = any. The error is ErrConflict if it has another one, or
// while a job that has not ended, or a schedule, names the queue. It is ErrNotFound for an
// unknown queue, also if an attempt of this call whose answer was lost has deleted it.
func (c *Client) DeleteQueue(ctx context.Context, name string, version uint32) error {
	_, err := call(ctx, c, operation{name: "deleting queue " + name}, dtaskv1.QueueServiceClient.DeleteQueue, &dtaskv1.DeleteQueueRequest{Name: name, IfVersion: version})
	return err
}
