package access

import (
	"context"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// keyOverlap is how long a worker's old key stays valid beside the new one: longer than it
// takes any worker to return and use the new one, which ends the old one.
const keyOverlap = 10 * 365 * 24 * time.Hour

// RotateKey implements AuthService. The new key replaces the old one only after the worker
// has used it, so that one that loses the new key on the way keeps its access.
func (s *Service) RotateKey(ctx context.Context, r *dtaskv1.RotateKeyRequest) (*dtaskv1.RotateKeyResponse, error) {
	recorder, err := s.recorder()
	if err != nil {
		return nil, err
	}
	if err := checkRequest("-", r.GetPublicKeyHash(), 0); err != nil {
		return nil, err
	}
	caller := auth.FromContext(ctx)
	info, ok := connectionOf(ctx).(credentials.TLSInfo)
	if caller == nil || caller.Via != auth.ViaKey || !ok || len(info.State.PeerCertificates) == 0 {
		return nil, invalid("only a worker that uses its key has a key to replace")
	}
	used, wanted := tlsconf.KeyHash(info.State.PeerCertificates[0]), hash(r.GetPublicKeyHash())
	id := fsm.IdentityID(caller.ID)
	var others []hash // neither used nor wanted
	s.read(func(st *fsm.State) {
		for _, c := range st.Identity(id).Credentials {
			if c.Hash != used && c.Hash != wanted {
				others = append(others, c.Hash)
			}
		}
	})
	for _, h := range others {
		if _, err := recorder.DropCredential(ctx, id, h); err != nil {
			return nil, err
		}
		s.cfg.Registry.endRevoked() // before the answer, as in RevokeToken
	}
	if used == wanted {
		s.cfg.Logger.InfoContext(ctx, "worker uses its new key", "worker", caller.Name)
		return new(dtaskv1.RotateKeyResponse), nil
	}
	return new(dtaskv1.RotateKeyResponse), recorder.AddCredential(ctx, id, sequencer.NewCredential{Kind: fsm.KeyCredential, Hash: wanted}, keyOverlap)
}
