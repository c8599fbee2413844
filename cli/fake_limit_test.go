package cli

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// fakeLimits are the limits of the fake cluster; mu of the leader guards them.
type fakeLimits struct{ limits []*dtaskv1.Limit }

func newFakeLimits() fakeLimits {
	return fakeLimits{limits: []*dtaskv1.Limit{
		{
			Name: "export-api", Version: 3, SetBy: "alice", CreatedAt: noon.UnixMilli(), ChangedAt: noon.UnixMilli(),
			Settings: &dtaskv1.LimitSettings{Running: 8, Rate: 50, PeriodMs: 1000, Burst: 100}, Held: 7, Waiting: 12_345,
			Counters: []*dtaskv1.LimitCounter{{Use: "export-api", Held: 7, Waiting: 12_345, Tokens: 98, Holders: []string{"42/map[0]", "42/map[1]"}}},
		},
		{
			Name: "tenant/*", Version: 1, CreatedAt: noon.UnixMilli(), ChangedAt: noon.UnixMilli(), Settings: &dtaskv1.LimitSettings{Running: 2}, Held: 3, Waiting: 1,
			Counters: []*dtaskv1.LimitCounter{
				{Use: "tenant/acme", Held: 2, Waiting: 1, Holders: []string{"42/reduce", "43/run"}}, {Use: "tenant/initech", Held: 1, Holders: []string{"44/run"}},
			},
		},
	}}
}

func (f *fakeLeader) limitNamed(name string) (*dtaskv1.Limit, error) {
	i := slices.IndexFunc(f.limits, func(l *dtaskv1.Limit) bool { return l.GetName() == name })
	if i < 0 {
		meant := ""
		switch name {
		case "export":
			meant = `; did you mean "export-api"?`
		case "tenant/acme":
			meant = `; it is a key of the limit "tenant/*"`
		}
		return nil, refusal(codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND, fmt.Sprintf("limit %q not found%s", name, meant))
	}
	return f.limits[i], nil
}

func checkLimitVersion(l *dtaskv1.Limit, version uint32) error {
	if version == 0 || l.GetVersion() == version {
		return nil
	}
	return refusal(codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT,
		fmt.Sprintf("limit %q has version %d, and the request expects version %d: read the limit again", l.GetName(), l.GetVersion(), version))
}

func (f *fakeLeader) SetLimit(_ context.Context, r *dtaskv1.SetLimitRequest) (*dtaskv1.SetLimitResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l, unknown := f.limitNamed(r.GetName())
	if unknown != nil {
		l = &dtaskv1.Limit{Name: r.GetName(), CreatedAt: noon.UnixMilli()}
	}
	if err := checkLimitVersion(l, r.GetIfVersion()); err != nil {
		return nil, err
	}
	if unknown != nil {
		f.limits = append(f.limits, l)
	}
	l.Version++
	l.Settings, l.ChangedAt, l.SetBy = r.GetSettings(), noon.UnixMilli(), "alice"
	return &dtaskv1.SetLimitResponse{Limit: l}, nil
}

func (f *fakeLeader) ListLimits(_ context.Context, r *dtaskv1.ListLimitsRequest) (*dtaskv1.ListLimitsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.GetName() == "" {
		return &dtaskv1.ListLimitsResponse{Limits: f.limits}, nil
	}
	l, err := f.limitNamed(r.GetName())
	return &dtaskv1.ListLimitsResponse{Limits: []*dtaskv1.Limit{l}}, err
}

func (f *fakeLeader) DeleteLimit(_ context.Context, r *dtaskv1.DeleteLimitRequest) (*dtaskv1.DeleteLimitResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l, err := f.limitNamed(r.GetName())
	if err == nil {
		err = checkLimitVersion(l, r.GetIfVersion())
	}
	if err != nil {
		return nil, err
	}
	if l.GetHeld() > 0 {
		return nil, refusal(codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT, fmt.Sprintf("limit %q is used by jobs that have not ended (12): wait for the end of the jobs", r.GetName()))
	}
	f.limits = slices.DeleteFunc(f.limits, func(other *dtaskv1.Limit) bool { return other == l })
	return &dtaskv1.DeleteLimitResponse{}, nil
}
