package cli

import (
	"bytes"
	"context"
	"time"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// TLSStatus shows a CA that is being replaced: n2 does not answer, and w7 lacks the new one.
func (f *fakeLeader) TLSStatus(context.Context, *dtaskv1.TLSStatusRequest) (*dtaskv1.TLSStatusResponse, error) {
	next, old := bytes.Repeat([]byte{0xaa}, 32), bytes.Repeat([]byte{0xbb}, 32)
	return &dtaskv1.TLSStatusResponse{
		Cas:           []*dtaskv1.CertificateAuthority{{KeyHash: next, ExpiresAt: ago(-3650 * 24 * time.Hour)}, {KeyHash: old, ExpiresAt: ago(-30 * 24 * time.Hour)}},
		RotatingSince: ago(time.Hour), Workers: 9, WorkersLacking: []string{"w7\x1b[2J"},
		Replicas: []*dtaskv1.ReplicaCertificate{
			{ServerId: "n1", Address: "m1:7460", Reachable: true, CaKeyHash: next, ExpiresAt: ago(-90 * 24 * time.Hour), Current: true, HasCaKey: true},
			{ServerId: "n2", Address: "m2:7460"},
			{ServerId: "n3", Address: "m3:7460", Reachable: true, CaKeyHash: old, ExpiresAt: ago(-20 * 24 * time.Hour), HasCaKey: true},
		},
	}, nil
}

func (f *fakeLeader) RotateCA(ctx context.Context, r *dtaskv1.RotateCARequest) (*dtaskv1.RotateCAResponse, error) {
	if r.GetFinish() {
		return nil, refusal(codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED, "1 coordinators and workers lack the new CA, and would be locked out: worker w7")
	}
	status, err := f.TLSStatus(ctx, nil)
	resp := &dtaskv1.RotateCAResponse{Status: status}
	if r.GetCompromised() {
		resp.MustJoin = []string{"worker w7"}
	}
	return resp, err
}
