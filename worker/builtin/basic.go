package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dtask/dtask/worker"
)

// echo returns its payload.
func echo(_ context.Context, t *worker.Task) ([]byte, error) { return t.Payload, nil }

// noop does nothing.
func noop(context.Context, *worker.Task) ([]byte, error) { return nil, nil }

// sleep waits for the duration in its payload.
func sleep(ctx context.Context, t *worker.Task) ([]byte, error) {
	wait, err := parseDuration(text(t.Payload))
	if err != nil {
		return nil, worker.Fatal(err)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// failure is the payload of fail.
type failure struct {
	Exit    uint8  `json:"exit"`    // exit code that it counts as; 0 = 1
	Message string `json:"message"` // error text
	Times   uint32 `json:"times"`   // attempts that fail; 0 = all
}

// fail fails, always or until it has failed often enough.
func fail(_ context.Context, t *worker.Task) ([]byte, error) {
	f := failure{}
	if len(bytes.TrimSpace(t.Payload)) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(t.Payload))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&f); err != nil {
			return nil, worker.Fatal(fmt.Errorf("payload is not {exit, message, times}: %w", err))
		}
		if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
			return nil, worker.Fatal(errors.New("payload has more than {exit, message, times}"))
		}
	}
	// Failures, not attempts: an attempt that was handed back did not fail.
	if f.Times > 0 && t.Failures >= f.Times {
		return nil, nil
	}
	if f.Message == "" {
		f.Message = "failed as asked"
	}
	return nil, worker.Exit(max(f.Exit, 1), errors.New(f.Message))
}

// text is a payload as written: bare, or as a JSON string.
func text(payload []byte) string {
	s := strings.TrimSpace(string(payload))
	if strings.HasPrefix(s, `"`) {
		var inner string
		if json.Unmarshal([]byte(s), &inner) == nil {
			return strings.TrimSpace(inner)
		}
	}
	return s
}

// parseDuration reads 90s, 1h30m or 2d12h; days come first.
func parseDuration(s string) (time.Duration, error) {
	rest, days := s, uint64(0)
	if count, after, found := strings.Cut(s, "d"); found {
		n, err := strconv.ParseUint(count, 10, 32)
		if err != nil {
			return 0, fmt.Errorf("payload %.40q is no duration such as 90s, 1h30m or 2d", s)
		}
		days, rest = n, after
	}
	var wait time.Duration
	if rest != "" || days == 0 {
		var err error
		if wait, err = time.ParseDuration(rest); err != nil || (days > 0 && strings.ContainsAny(rest[:1], "+-")) {
			return 0, fmt.Errorf("payload %.40q is no duration such as 90s, 1h30m or 2d", s)
		}
	}
	const day = 24 * time.Hour
	if wait < 0 || days > uint64((math.MaxInt64-wait)/day) {
		return 0, fmt.Errorf("payload %.40q is negative or too long", s)
	}
	return time.Duration(days)*day + wait, nil //nolint:gosec // bounded by the line above
}
