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

// sleep waits for the duration in the payload.
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
	Exit    uint8  `json:"exit"`    // equivalent exit code; 0 means 1
	Message string `json:"message"` // error text
	Times   uint32 `json:"times"`   // number of attempts that fail (0 = all)
}

// fail fails always, or in the given number of attempts.
func fail(_ context.Context, t *worker.Task) ([]byte, error) {
	f := failure{}
	if len(bytes.TrimSpace(t.Payload)) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(t.Payload))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&f); err != nil {
			return nil, worker.Fatal(fmt.Errorf("invalid payload: must be {exit, message, times}: %w", err))
		}
		if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
			return nil, worker.Fatal(errors.New("invalid payload: must be one object {exit, message, times}"))
		}
	}
	// Failures and not attempts: a released attempt did not fail.
	if f.Times > 0 && t.Failures >= f.Times {
		return nil, nil
	}
	if f.Message == "" {
		f.Message = "failed as requested"
	}
	return nil, worker.Exit(max(f.Exit, 1), errors.New(f.Message))
}

// text returns a payload that is plain text or a JSON string.
func text(payload []byte) string {
	s := strings.TrimSpace(string(payload))
	var inner string
	if strings.HasPrefix(s, `"`) && json.Unmarshal([]byte(s), &inner) == nil {
		return strings.TrimSpace(inner)
	}
	return s
}

// parseDuration parses 90s, 1h30m or 2d12h; days come first.
func parseDuration(s string) (wait time.Duration, err error) {
	rest, days := s, uint64(0)
	if count, after, found := strings.Cut(s, "d"); found {
		days, err = strconv.ParseUint(count, 10, 32)
		rest = after
	}
	if err == nil && (rest != "" || days == 0) {
		wait, err = time.ParseDuration(rest)
	}
	const day = 24 * time.Hour
	switch {
	case err != nil || days > 0 && strings.HasPrefix(rest, "+") || days > 0 && strings.HasPrefix(rest, "-"):
		return 0, fmt.Errorf("invalid duration %.40q in payload: use 90s, 1h30m or 2d", s)
	case wait < 0 || days > uint64((math.MaxInt64-wait)/day):
		return 0, fmt.Errorf("invalid duration %.40q in payload: negative or too long", s)
	}
	return time.Duration(days)*day + wait, nil //nolint:gosec // bounded by the case above
}
