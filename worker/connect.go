package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/internal/loopback"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	minBackoff    = 50 * time.Millisecond
	maxBackoff    = 2 * time.Second
	backoffFactor = 1.3 // small enough to find a new leader soon after its election
	maxRetryAfter = 10 * time.Second
	// maxSpread bounds the jitter that is added to a leader's retry delay.
	maxSpread = 100 * time.Millisecond
	// avoidDuration is how long a coordinator that timed out is skipped: longer
	// than an election takes.
	avoidDuration = 3 * time.Second
	// maxImmediateRedirects are followed without a pause; more in a row mean
	// that the replicas disagree on the leader.
	maxImmediateRedirects = 3
	// lateFailures in a row make a worker late, after 1.6 s or more, which an election rarely
	// takes: its pauses have grown, so that a coordinator that hangs must not cost a liveness
	// timeout, too.
	lateFailures      = 10
	maxLearnedLeaders = 16
	// foreignRetryDelay is how long the address of another cluster is tried only
	// if no other is known. It may be given to a coordinator of this one.
	foreignRetryDelay = time.Minute
	maxReceive        = 16 << 20 // bytes of one message
	window            = 1 << 20  // bytes in flight
)

// finder chooses the coordinator to try next. It is used by one goroutine.
type finder struct {
	seeds        []string // always kept
	learned      []string // leaders that replicas named; tried after the seeds
	turn         int
	next         string         // tried first, once
	failures     int            // in a row, without a welcome
	followed     map[string]int // redirects to each address, without a welcome
	avoided      string         // timed out: skipped,
	avoidedUntil time.Time      // until then
	// foreign are the addresses of other clusters, and when they are tried again.
	foreign   map[string]time.Time
	redirects []string // addresses that led to the current one, one after another
}

// address returns the address to try now.
func (f *finder) address() string {
	if f.next != "" {
		addr := f.next
		f.next = ""
		return addr
	}
	addr := f.rotate()
	if f.avoids(addr) {
		addr = f.rotate()
	}
	return addr
}

// again makes the next session one with the same coordinator. It was the leader when the worker
// left it: another one would only name it, after a handshake that thousands of workers would
// make at the same time.
func (f *finder) again(addr string) { f.next = addr }

// isLate reports whether no coordinator has welcomed the worker for some time.
func (f *finder) isLate() bool { return f.failures >= lateFailures }

// avoids reports whether an address is not worth a try yet: it hung moments
// ago, and would cost another timeout. Replicas that have not noticed may still
// name it as the leader.
func (f *finder) avoids(addr string) bool {
	return addr == f.avoided && time.Now().Before(f.avoidedUntil)
}

// rotate returns the next address in turn. It skips those of other clusters,
// unless there are no others.
func (f *finder) rotate() string {
	all := slices.Concat(f.seeds, f.learned)
	for range all {
		addr := all[f.turn%len(all)]
		f.turn++
		if time.Now().After(f.foreign[addr]) {
			return addr
		}
	}
	addr := all[f.turn%len(all)]
	f.turn++
	return addr
}

// noteForeign records that an address, and all that redirected to it, belong to
// another cluster.
func (f *finder) noteForeign(addr string) {
	if f.foreign == nil {
		f.foreign = make(map[string]time.Time)
	}
	for _, x := range append(f.redirects, addr) {
		f.foreign[x] = time.Now().Add(foreignRetryDelay)
		f.learned = slices.DeleteFunc(f.learned, func(l string) bool { return l == x })
	}
}

// isForeign reports whether an address belonged to another cluster.
func (f *finder) isForeign(addr string) bool { return !f.foreign[addr].IsZero() }

// onlyForeign reports whether no address is known that may be of this cluster.
func (f *finder) onlyForeign() bool {
	return !slices.ContainsFunc(slices.Concat(f.seeds, f.learned), func(addr string) bool { return time.Now().After(f.foreign[addr]) })
}

// after learns from the end of a session, and returns how long to wait before
// the next one.
func (f *finder) after(addr string, welcomed bool, err error) time.Duration {
	if errors.Is(err, errLivenessTimeout) {
		f.avoided, f.avoidedUntil = addr, time.Now().Add(avoidDuration)
	}
	if successor, ok := errors.AsType[*successorError](err); ok {
		if welcomed { // otherwise it may be only slow, and the worker stays late
			f.avoided, f.avoidedUntil = addr, time.Now().Add(avoidDuration)
			f.failures, f.followed, f.redirects = 0, nil, nil
		}
		f.learn(successor.address)
		f.next = successor.address
		return 0
	}
	detail := errorDetail(err)
	if foreignCluster(err) != "" {
		f.noteForeign(addr)
		f.redirects = nil
		if !f.onlyForeign() {
			return 0 // the next one may be the leader
		}
	}
	redirected := detail.GetReason() == dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER &&
		detail.GetLeaderAddress() != "" && detail.GetLeaderAddress() != addr && !f.avoids(detail.GetLeaderAddress())
	if welcomed {
		f.failures, f.followed, f.redirects = 0, nil, nil
		delete(f.foreign, addr)
		if redirected { // by a leader that has transferred leadership
			f.learn(detail.GetLeaderAddress())
			f.next = detail.GetLeaderAddress()
			return 0
		}
		return jitter(minBackoff / 2)
	}
	switch hint := detail.GetLeaderAddress(); {
	case detail.GetNameHolder() != nil:
		f.next = addr // it leads
	case detail.GetReason() == dtaskv1.ErrorReason_ERROR_REASON_BUSY && detail.GetRetryAfterMs() > 0:
		f.next = addr
		wait := min(time.Duration(min(detail.GetRetryAfterMs(), math.MaxInt32))*time.Millisecond, maxRetryAfter)
		return wait + jitter(min(wait/2, maxSpread)) // the leader gives each worker a delay of its own
	case redirected:
		f.learn(hint)
		f.next = hint
		f.redirects = append(f.redirects, addr)
		if f.followed == nil {
			f.followed = make(map[string]int)
		}
		if f.followed[hint]++; f.followed[hint] <= maxImmediateRedirects {
			return 0
		}
	}
	if f.next == "" {
		f.redirects = nil
	}
	f.failures++
	pause := float64(minBackoff) * math.Pow(backoffFactor, float64(min(f.failures-1, 50)))
	return jitter(time.Duration(min(pause, float64(maxBackoff))))
}

// others returns all addresses of this cluster but one.
func (f *finder) others(addr string) []string {
	return slices.DeleteFunc(slices.Concat(f.seeds, f.learned), func(other string) bool {
		return other == addr || time.Now().Before(f.foreign[other])
	})
}

// learn adds a leader's address, which may help when the seeds are gone.
func (f *finder) learn(addr string) {
	if slices.Contains(f.seeds, addr) || slices.Contains(f.learned, addr) {
		return
	}
	if len(f.learned) == maxLearnedLeaders {
		f.learned = f.learned[1:]
	}
	f.learned = append(f.learned, addr)
}

// jitter returns a random duration between d/2 and d.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1) //nolint:gosec // spread, not secrecy
}

// statusOf returns the gRPC status in the chain of err, or nil.
func statusOf(err error) *status.Status {
	var withStatus interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &withStatus) {
		return nil
	}
	return withStatus.GRPCStatus()
}

// errorDetail returns the detail that a coordinator attached to its error, or
// nil.
func errorDetail(err error) *dtaskv1.ErrorDetail {
	for _, detail := range statusOf(err).Details() {
		if d, ok := detail.(*dtaskv1.ErrorDetail); ok {
			return d
		}
	}
	return nil
}

// foreignCluster returns the other cluster to which a coordinator belongs, as it
// or its refusal states, or "".
func foreignCluster(err error) string {
	if foreign, ok := errors.AsType[*foreignClusterError](err); ok {
		return foreign.cluster
	}
	return errorDetail(err).GetClusterId()
}

// plainError returns the text of err for the log, without the prefix of gRPC
// errors.
func plainError(err error) string {
	if st := statusOf(err); st != nil {
		return st.Message()
	}
	return fmt.Sprint(err)
}

// authorized adds the token to the metadata of a call.
func (w *Worker) authorized(ctx context.Context) context.Context {
	if w.cfg.Token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+w.cfg.Token)
}

// A dialer opens the connection to an address.
type dialer = func(ctx context.Context, addr string) (net.Conn, error)

// dialTCP is the default dialer with TLS.
func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err //nolint:wrapcheck // grpc wraps it with the address
	}
	return conn, nil
}

// dialPlaintext is the default dialer without TLS. It refuses addresses that are not on
// this machine, also those that a coordinator names as the leader's.
func dialPlaintext(ctx context.Context, addr string) (net.Conn, error) {
	if !loopback.Is(addr) {
		return nil, errors.New("not on loopback, and other machines require TLS: use the cluster's ca.crt (--ca-file, Config.TLS)")
	}
	return dialTCP(ctx, addr)
}

// checkPlaintext returns an error for each address that dialPlaintext refuses.
func checkPlaintext(join []string) error {
	var problems []error
	for _, addr := range join {
		if !loopback.Is(addr) {
			problems = append(problems, fmt.Errorf("invalid --join %q: must be a loopback address such as 127.0.0.1, "+
				"because other machines require TLS: use the cluster's ca.crt (--ca-file, Config.TLS)", addr))
		}
	}
	return errors.Join(problems...)
}
