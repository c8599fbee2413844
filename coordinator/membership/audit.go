package membership

import (
	"context"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// AuditHeads implements ClusterService.
func (s *Service) AuditHeads(ctx context.Context, _ *dtaskv1.AuditHeadsRequest) (*dtaskv1.AuditHeadsResponse, error) {
	if _, _, err := s.leading(ctx); err != nil {
		return nil, err
	}
	resp := new(dtaskv1.AuditHeadsResponse)
	s.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		for _, h := range st.AuditHeads() {
			resp.Heads = append(resp.Heads, &dtaskv1.AuditHead{ServerId: h.ServerID, Seq: h.Seq, Hash: h.Hash[:], At: h.AtMS})
		}
	})
	return resp, nil
}
