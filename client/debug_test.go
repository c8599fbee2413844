package client

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// bundles is the AdminService of a fake that sends a message of a debug bundle after each of
// these pauses.
type bundles struct {
	dtaskv1.UnimplementedAdminServiceServer

	pauses []time.Duration
}

func (b *bundles) Debug(_ *dtaskv1.DebugRequest, s grpc.ServerStreamingServer[dtaskv1.DebugResponse]) error {
	for _, pause := range b.pauses {
		select {
		case <-time.After(pause):
		case <-s.Context().Done():
			return s.Context().Err()
		}
		if err := s.Send(&dtaskv1.DebugResponse{ServerId: "n1", File: "cpu.pb.gz", Data: []byte{1}}); err != nil {
			return err
		}
	}
	return nil
}

// debugOf asks a coordinator that pauses for a bundle with a profile.
func debugOf(t *testing.T, profile time.Duration, pauses ...time.Duration) ReplicaDebug {
	t.Helper()
	n, c := setup(t, Config{Addrs: []string{"n1:1", "n2:1"}})
	for addr, service := range map[string]*bundles{"n1:1": {pauses: pauses}, "n2:1": {pauses: []time.Duration{0}}} {
		f := &fake{status: func() (*dtaskv1.StatusResponse, error) {
			return &dtaskv1.StatusResponse{Leader: "n1", Replica: addr[:2], Members: []*dtaskv1.Member{{Id: "n1", Address: "n1:1"}, {Id: "n2", Address: "n2:1"}}}, nil
		}}
		t.Cleanup(n.start(addr, f, f, service))
	}
	all, err := c.Debug(t.Context(), profile)
	if err != nil || len(all) != 2 {
		t.Fatalf("got %d answers, %v", len(all), err)
	}
	for _, r := range all {
		if r.Address == "n1:1" {
			return r
		}
	}
	t.Fatalf("n1 is missing in %+v", all)
	return ReplicaDebug{}
}

// The profile comes last: neither its own time nor a slow connection before it may cut it off.
func TestADebugBundleIsCompleteHoweverLongItTakes(t *testing.T) {
	t.Parallel()
	const profile = 30 * time.Second
	slow := slices.Repeat([]time.Duration{20 * time.Second}, 12)
	for name, pauses := range map[string][]time.Duration{"a long profile": {0, profile + time.Second}, "a slow connection": append(slow, profile+20*time.Second)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := debugOf(t, profile, pauses...)
				if r.Err != nil || len(r.Files) != 1 || len(r.Files[0].Data) != len(pauses) {
					t.Errorf("got %+v", r)
				}
			})
		})
	}
}

func TestACoordinatorThatSendsNothingIsNotWaitedForForever(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := debugOf(t, 5*time.Second, 0, time.Hour)
		if r.Err == nil || !strings.Contains(r.Err.Error(), "sent nothing for 35s") || len(r.Files) != 1 {
			t.Errorf("got %+v, want what was sent, and an error", r)
		}
		if took := time.Since(began); took != 35*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
