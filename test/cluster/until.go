package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// pollEvery is how often Until looks.
const pollEvery = 20 * time.Millisecond

// ErrNotYet may be returned by a condition that has nothing to say but that it
// does not hold yet.
var ErrNotYet = errors.New("not yet")

// Until looks again and again until cond returns nil, and fails when ctx is done
// or the limit has passed; the error then has cond's last one.
func Until(ctx context.Context, what string, limit time.Duration, cond func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	last := ErrNotYet
	for {
		err := cond(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s (%s): %w", what, limit, last)
		}
	}
}

// Pause waits, for tests in which time itself is what happens.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
