package api

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// clusterKey is the metadata key under which a call names the cluster that its caller
// belongs to, and a response the cluster of this replica. Package client has the same.
const clusterKey = "dtask-cluster-id"

// trustKey is the metadata key under which a response names the CAs that this replica
// trusts. Package client has the same.
const trustKey = "dtask-trust"

// clusterUnary refuses a call that names another cluster than this replica's, and
// announces the replica's cluster in the response.
func (s *Server) clusterUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := s.checkCluster(ctx, info.FullMethod, func(md metadata.MD) error { return grpc.SetHeader(ctx, md) }); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

// clusterStream is clusterUnary for streams.
func (s *Server) clusterStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := s.checkCluster(stream.Context(), info.FullMethod, stream.SetHeader); err != nil {
		return err
	}
	return handler(srv, stream)
}

// checkCluster does nothing while this replica doesn't know its cluster. Identify is
// never refused: its response says which cluster this is.
func (s *Server) checkCluster(ctx context.Context, method string, announce func(metadata.MD) error) error {
	md := s.clusterHeader()
	if md == nil {
		return nil
	}
	if err := announce(md); err != nil {
		return err //nolint:wrapcheck // a status
	}
	if method == dtaskv1.ClusterService_Identify_FullMethodName {
		return nil
	}
	own := md[clusterKey][0]
	for _, named := range metadata.ValueFromIncomingContext(ctx, clusterKey) {
		if named != "" && named != own {
			return s.status(ctx, method, &Error{
				Kind: KindForeign, ClusterID: own,
				Message: fmt.Sprintf("this coordinator belongs to cluster %s, not %q", own, named),
			})
		}
	}
	return nil
}

// clusterHeader returns the header of all responses; nil while the cluster is unknown.
// It is kept until the CAs change: a replica never changes its cluster.
func (s *Server) clusterHeader() metadata.MD {
	trust := ""
	if s.cfg.Trust != nil {
		trust = s.cfg.Trust()
	}
	if kept := s.header.Load(); kept != nil && kept.trust == trust {
		return kept.md
	}
	id := s.cfg.ClusterID()
	if id == "" {
		return nil
	}
	md := metadata.MD{clusterKey: {id}}
	if trust != "" {
		md[trustKey] = []string{trust}
	}
	s.header.Store(&responseHeader{trust, md})
	return md
}

// responseHeader is the header of responses while the replica trusts some CAs.
type responseHeader struct {
	trust string
	md    metadata.MD
}
