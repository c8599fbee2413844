package api

import (
	"errors"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// denialCounts counts calls that were refused because of their caller, by reason.
type denialCounts [auth.DenialCount]atomic.Uint64

// CountDenial counts a call that another port refused because of its caller.
func (s *Server) CountDenial(why auth.Denial) { s.denials[why].Add(1) }

// Denials returns the number of calls that this replica refused because of their caller, by
// reason. The map has all reasons and belongs to the caller.
func (s *Server) Denials() map[string]uint64 {
	counts := make(map[string]uint64, auth.DenialCount)
	for d := range auth.DenialCount {
		counts[d.String()] = s.denials[d].Load()
	}
	return counts
}

// denialOf returns why a call was refused: cause is the error of its handler, and err the
// status that the caller gets.
func (s *Server) denialOf(method string, cause, err error) auth.Denial {
	if refusal, ok := errors.AsType[*auth.DeniedError](cause); ok {
		if refusal.Principal == nil {
			return auth.DenialNoCredential
		}
		return auth.DenialRole
	}
	if status.Code(err) == codes.Unauthenticated {
		return auth.DenialCredential
	}
	if method == dtaskv1.AuthService_Join_FullMethodName {
		return auth.DenialJoinString
	}
	if e := meaning(cause, s.cfg.Classify); e != nil && e.Kind == KindDenied {
		return auth.DenialScope
	}
	return auth.DenialOther
}
