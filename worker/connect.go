package worker

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	minBackoff    = 50 * time.Millisecond
	maxBackoff    = 2 * time.Second
	backoffFactor = 1.3 // slow enough that a new leader is found soon after its election
	maxRetryAfter = 10 * time.Second
	// longestSpread bounds what is added to the time at which to come again.
	maxSpread = 100 * time.Millisecond
	// avoidSilent is for how long one that hung is passed over: longer than an
	// election takes.
	avoidDuration = 3 * time.Second
	// quickRedirects are followed at once; more in a row mean that the replicas
	// disagree about who leads.
	maxImmediateRedirects = 3
	maxLearnedLeaders     = 16
	maxReceive            = 16 << 20 // bytes of one message
	window                = 1 << 20  // bytes in flight
)

// finder chooses whom to try next. It is used by one goroutine.
type finder struct {
	seeds        []string // for ever
	learned      []string // leaders that replicas named; tried after the seeds
	turn         int
	next         string         // tried first, once
	failures     int            // in a row, without a welcome
	followed     map[string]int // redirects to each address, without a welcome
	avoided      string         // said nothing for too long: passed over,
	avoidedUntil time.Time      // until then
}

// address is whom to try now.
func (f *finder) address() string {
	if f.next != "" {
		addr := f.next
		f.next = ""
		return addr
	}
	i := f.take()
	if f.avoids(f.at(i)) {
		i = f.take()
	}
	return f.at(i)
}

// avoids says that an address is not worth a try yet: it hung a moment ago, and
// would cost as long again. Replicas that have not noticed still name it.
func (f *finder) avoids(addr string) bool {
	return addr == f.avoided && time.Now().Before(f.avoidedUntil)
}

// take is the next turn.
func (f *finder) take() int {
	i := f.turn % (len(f.seeds) + len(f.learned))
	f.turn++
	return i
}

// at is the address of a turn.
func (f *finder) at(i int) string {
	if i < len(f.seeds) {
		return f.seeds[i]
	}
	return f.learned[i-len(f.seeds)]
}

// after learns from the end of a session and returns how long to wait before the
// next one.
func (f *finder) after(addr string, welcomed bool, err error) time.Duration {
	if errors.Is(err, errLivenessTimeout) {
		f.avoided, f.avoidedUntil = addr, time.Now().Add(avoidDuration)
	}
	if welcomed {
		f.failures, f.followed = 0, nil
		return jitter(minBackoff / 2) // the others know more than a leader that was lost
	}
	detail := errorDetail(err)
	switch hint := detail.GetLeaderAddress(); {
	case detail.GetReason() == dtaskv1.ErrorReason_ERROR_REASON_BUSY && detail.GetRetryAfterMs() > 0:
		f.next = addr
		wait := min(time.Duration(min(detail.GetRetryAfterMs(), math.MaxInt32))*time.Millisecond, maxRetryAfter)
		return wait + jitter(min(wait/2, maxSpread)) // the leader gives each its own time
	case detail.GetReason() == dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER && hint != "" && hint != addr && !f.avoids(hint):
		f.learn(hint)
		f.next = hint
		if f.followed == nil {
			f.followed = make(map[string]int)
		}
		if f.followed[hint]++; f.followed[hint] <= maxImmediateRedirects {
			return 0
		}
	}
	f.failures++
	pause := float64(minBackoff) * math.Pow(backoffFactor, float64(min(f.failures-1, 50)))
	return jitter(time.Duration(min(pause, float64(maxBackoff))))
}

// learn keeps an address that may help when the seeds are gone.
func (f *finder) learn(addr string) {
	if slices.Contains(f.seeds, addr) || slices.Contains(f.learned, addr) {
		return
	}
	if len(f.learned) == maxLearnedLeaders {
		f.learned = f.learned[1:]
	}
	f.learned = append(f.learned, addr)
}

// jitter spreads a pause between its half and its whole.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1) //nolint:gosec // spread, not secrecy
}

// errorDetail is what a coordinator attached to its error, or nil.
func errorDetail(err error) *dtaskv1.ErrorDetail {
	var withStatus interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &withStatus) {
		return nil
	}
	for _, detail := range withStatus.GRPCStatus().Details() {
		if d, ok := detail.(*dtaskv1.ErrorDetail); ok {
			return d
		}
	}
	return nil
}

// authorized adds the token to what a call carries.
func (w *Worker) authorized(ctx context.Context) context.Context {
	if w.cfg.Token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+w.cfg.Token)
}

// dialTCP is the dialer of a worker that was given none.
func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err //nolint:wrapcheck // grpc wraps it with the address
	}
	return conn, nil
}
