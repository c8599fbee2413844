package worker

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// revocationPeriod is how long coordinators must refuse a worker until it ends. A leader
// that was deposed without noticing may not know a worker that has just joined, but it
// notices within that time.
const revocationPeriod = time.Second

// revocation notes when coordinators refuse the identity of the worker.
type revocation struct {
	since time.Time // of the first refusal after the last session; zero: none
}

// noted notes how a session ended, and reports whether the identity was certainly revoked: a
// coordinator has ended an open session for that, or coordinators have refused the worker
// for revocationPeriod. Errors of connections say nothing about the identity.
func (r *revocation) noted(welcomed bool, err error, now time.Time) bool {
	if !isRefused(err) {
		if welcomed {
			r.since = time.Time{}
		}
		return false
	}
	if r.since.IsZero() {
		r.since = now
	}
	return welcomed || now.Sub(r.since) >= revocationPeriod
}

// isRefused reports whether err is the answer of a coordinator that knows no identity of the
// worker. A proxy can give the same code, and not the detail.
func isRefused(err error) bool {
	st := statusOf(err)
	return st.Code() == codes.Unauthenticated && errorDetail(err).GetReason() == dtaskv1.ErrorReason_ERROR_REASON_REFUSED
}

// revoked returns the error of a worker whose identity was revoked.
func (w *Worker) revoked(err error) *RevokedError {
	e := &RevokedError{Name: w.name, Cluster: w.fence.clusterID(), Reason: plainError(err)}
	if w.member != nil {
		e.Dir = w.dirs.root
	}
	return e
}

// abandon stops all attempts, which the cluster has given to other workers, and returns the
// reason. No session is open: nothing is reported.
func (w *Worker) abandon(reason error) error {
	w.log.Error("stopping all attempts", "err", reason)
	w.attempts.drain()
	limit := w.attempts.longestGrace() + stopTimeout
	w.attempts.stopRunning(ErrSuperseded)
	if !w.await(limit, nil, w.attempts.isIdle) {
		running, _ := w.attempts.counts()
		return errors.Join(reason, fmt.Errorf("%w: %d", errStillRunning, running))
	}
	w.slots.Wait()
	return reason
}
