package membership

import (
	"context"
	"errors"
	"fmt"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// SetClusterName implements ClusterService. It is idempotent.
func (s *Service) SetClusterName(ctx context.Context, r *dtaskv1.SetClusterNameRequest) (*dtaskv1.SetClusterNameResponse, error) {
	if err := auth.CheckClusterName(r.GetName()); r.GetName() != "" && err != nil {
		return nil, invalid(err.Error())
	}
	recorder, _, err := s.leading(ctx)
	if err != nil {
		return nil, err
	}
	already, err := recorder.SetClusterName(ctx, r.GetName())
	if rejected, is := errors.AsType[*sequencer.RejectedError](err); is && rejected.Reason == fsm.AboveLevel {
		return nil, refused("names of clusters need feature level %d: dtaskctl cluster upgrade status shows what it waits for", fsm.OpLevel(new(fsm.SetClusterName)))
	}
	if err != nil {
		return nil, fmt.Errorf("naming the cluster: %w", err)
	}
	return &dtaskv1.SetClusterNameResponse{Already: already}, nil
}

// clusterName is the name of the cluster, as far as this replica has applied the log.
func (s *Service) clusterName() (name string) {
	s.cfg.Machine.Read(func(st *fsm.State, _ uint64) { name = st.ClusterName() })
	return name
}
