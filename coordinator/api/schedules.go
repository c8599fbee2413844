package api

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/nearest"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// schedules implements ScheduleService.
type schedules struct {
	dtaskv1.UnimplementedScheduleServiceServer
	*Server
}

const (
	// defaultTicks is how many next ticks a response has, and maxTicks how many a request
	// may ask for.
	defaultTicks = 3
	maxTicks     = 1000
)

// scheduleNamespace returns the namespace of a request about a schedule.
func scheduleNamespace(p *auth.Principal, named string) (string, error) {
	switch home := p.Home(); {
	case named != "":
		return named, nil
	case home != "":
		return home, nil
	case len(p.Namespaces) == 0:
		return "", denied("%s has no namespace: an admin can give it one", p)
	}
	return "", invalid("namespace: missing; name one of %s", strings.Join(p.Namespaces, ", "))
}

// namedSchedule is a request about one schedule.
type namedSchedule interface {
	GetNamespace() string
	GetName() string
}

// scheduleName returns the namespace and the name of the schedule that a request is about.
// A namespace that the caller does not have has no schedules.
func scheduleName(ctx context.Context, r namedSchedule) (namespace, name string, err error) {
	p := caller(ctx)
	if r.GetName() == "" {
		return "", "", invalid("name: missing; name a schedule")
	}
	namespace, err = scheduleNamespace(p, r.GetNamespace())
	if err == nil && !p.Sees(namespace) {
		err = scheduleNotFound(nil, namespace, r.GetName())
	}
	return namespace, r.GetName(), err
}

// scheduleNotFound names the schedule of the namespace that was probably meant. Without a
// state, it names none: the caller may not know the names.
func scheduleNotFound(st *fsm.State, namespace, name string) error {
	text := fmt.Sprintf("schedule %s not found in the namespace %s", quote(name), quote(namespace))
	if st == nil {
		return notFound("%s", text)
	}
	near := nearest.Name(name, func(yield func(string) bool) {
		for x := range st.Schedules() {
			if scheduleSpace(x) == namespace && !yield(x.Name) {
				return
			}
		}
	})
	if near != "" {
		text += "; " + didYouMean(near)
	}
	return notFound("%s", text)
}

// find returns the schedule that a request is about, in the state as it is now.
func (s *schedules) find(ctx context.Context, r namedSchedule) (*fsm.State, *fsm.Schedule, uint64, error) {
	namespace, name, err := scheduleName(ctx, r)
	if err != nil {
		return nil, nil, 0, err
	}
	st, index := s.cfg.Machine.Fork()
	x := st.ScheduleByName(namespace, name)
	if x == nil {
		return nil, nil, 0, scheduleNotFound(st, namespace, name)
	}
	return st, x, index, nil
}

// ListSchedules implements ScheduleService.
func (s *schedules) ListSchedules(ctx context.Context, r *dtaskv1.ListSchedulesRequest) (*dtaskv1.ListSchedulesResponse, error) {
	token, err := parsePageToken(r.GetPageToken())
	if err != nil {
		return nil, err
	}
	shown := shownNamespaces(caller(ctx), r.GetNamespace())
	st, index := s.cfg.Machine.Fork()
	resp := &dtaskv1.ListSchedulesResponse{Freshness: s.freshness(index)}
	limit, size := pageLimit(r.GetLimit()), 0
	for x := range st.Schedules() {
		if uint64(x.ID) < token.id || shown != nil && !slices.Contains(shown, scheduleSpace(x)) {
			continue
		}
		if len(resp.GetSchedules()) >= limit || size > maxPageBytes {
			resp.NextPageToken = pageToken{id: uint64(x.ID)}.String()
			break
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		v := s.viewSchedule(st, x)
		shown := v.show(1)
		size += proto.Size(shown)
		resp.Schedules = append(resp.Schedules, shown)
	}
	return resp, nil
}

// scheduleSpace returns the namespace of a schedule, which is never empty.
func scheduleSpace(x *fsm.Schedule) string { return cmp.Or(x.Namespace, auth.DefaultNamespace) }

// GetSchedule implements ScheduleService.
func (s *schedules) GetSchedule(ctx context.Context, r *dtaskv1.GetScheduleRequest) (*dtaskv1.GetScheduleResponse, error) {
	if r.GetNext() > maxTicks {
		return nil, invalid("invalid next %d: must be 1 to %d, or 0 for %d", r.GetNext(), maxTicks, defaultTicks)
	}
	st, x, index, err := s.find(ctx, r)
	if err != nil {
		return nil, err
	}
	v := s.viewSchedule(st, x)
	shown := v.show(int(cmp.Or(r.GetNext(), defaultTicks)))
	if shown.Outcomes, err = v.outcomes(); err != nil {
		return nil, err
	}
	return &dtaskv1.GetScheduleResponse{Schedule: shown, Freshness: s.freshness(index)}, nil
}

// PauseSchedule implements ScheduleService.
func (s *schedules) PauseSchedule(ctx context.Context, r *dtaskv1.PauseScheduleRequest) (*dtaskv1.PauseScheduleResponse, error) {
	_, x, _, err := s.find(ctx, r)
	if err != nil {
		return nil, err
	}
	leader, err := s.leader()
	if err != nil {
		return nil, err
	}
	now, err := leader.PauseSchedule(ctx, x.ID, r.GetReason(), caller(ctx).Name)
	if err != nil {
		return nil, explainSchedule(err, x)
	}
	return &dtaskv1.PauseScheduleResponse{Schedule: s.showNow(now), Already: x.IsPaused()}, nil
}

// ResumeSchedule implements ScheduleService.
func (s *schedules) ResumeSchedule(ctx context.Context, r *dtaskv1.ResumeScheduleRequest) (*dtaskv1.ResumeScheduleResponse, error) {
	_, x, _, err := s.find(ctx, r)
	if err != nil {
		return nil, err
	}
	leader, err := s.leader()
	if err != nil {
		return nil, err
	}
	now, err := leader.ResumeSchedule(ctx, x.ID)
	if err != nil {
		return nil, explainSchedule(err, x)
	}
	return &dtaskv1.ResumeScheduleResponse{Schedule: s.showNow(now), Already: !x.IsPaused()}, nil
}

// DeleteSchedule implements ScheduleService.
func (s *schedules) DeleteSchedule(ctx context.Context, r *dtaskv1.DeleteScheduleRequest) (*dtaskv1.DeleteScheduleResponse, error) {
	_, x, _, err := s.find(ctx, r)
	if err != nil {
		return nil, err
	}
	leader, err := s.leader()
	if err != nil {
		return nil, err
	}
	if err := leader.DeleteSchedule(ctx, x.ID, r.GetIfVersion()); err != nil {
		if isRejected(err, fsm.VersionMismatch) {
			return nil, s.scheduleMismatch(scheduleSpace(x), x.Name, r.GetIfVersion())
		}
		return nil, explainSchedule(err, x)
	}
	return &dtaskv1.DeleteScheduleResponse{}, nil
}

// showNow shows a schedule after a committed change.
func (s *schedules) showNow(x *fsm.Schedule) *dtaskv1.Schedule {
	st, _ := s.cfg.Machine.Fork()
	return s.viewSchedule(st, x).show(defaultTicks)
}

// explainSchedule explains the rejection of a request about a schedule.
func explainSchedule(err error, x *fsm.Schedule) error {
	switch {
	case isRejected(err, fsm.ScheduleNotFound):
		return scheduleNotFound(nil, scheduleSpace(x), x.Name)
	case isRejected(err, fsm.KeyConflict):
		return keyConflict()
	case isRejected(err, fsm.IdentityRevoked), isRejected(err, fsm.IdentityNotFound):
		return refused("%s; set the schedule again, as another identity", ownerGone(x))
	}
	return err
}

// scheduleMismatch is the error for a schedule that has another version than a request
// expects, by the current state.
func (s *schedules) scheduleMismatch(namespace, name string, version uint32) error {
	st, _ := s.cfg.Machine.Fork()
	x := st.ScheduleByName(namespace, name)
	if x == nil {
		return conflict("schedule %s does not exist, and the request expects version %d", quote(name), version)
	}
	return conflict("schedule %s has version %d, and the request expects version %d: read the schedule again", quote(name), x.Version, version)
}
