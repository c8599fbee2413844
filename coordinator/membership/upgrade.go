package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/coordinator/transport"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// States of an upgrade; see UpgradeStatusResponse.
const (
	upgradeComplete = "complete"
	upgradeMixed    = "mixed"
	upgradeReady    = "ready"
)

// level returns the cluster's feature level, and whether it is held.
func (s *Service) level() (level fsm.Level, held bool) {
	s.cfg.Machine.Read(func(st *fsm.State, _ uint64) { level, held = st.Level(), st.LevelHeld() })
	return level, held
}

// askBuilds asks all members what they support. One that was restarted a moment ago gets
// the time to be connected again.
func (s *Service) askBuilds(ctx context.Context, members []raftnode.Server) []*dtaskv1.IdentifyResponse {
	return s.askMembers(ctx, members, s.identify(), grpc.WaitForReady(true))
}

// supports returns the highest level that a replica supports. One that announces none is
// older than feature levels.
func supports(a interface{ GetMaxLevel() uint32 }) fsm.Level {
	return fsm.Level(max(a.GetMaxLevel(), 1))
}

// supportedByAll returns the highest level that all members support; 0 while one of them
// does not answer.
func supportedByAll(answers []*dtaskv1.IdentifyResponse) fsm.Level {
	lowest := ^fsm.Level(0)
	for _, a := range answers {
		if a == nil {
			return 0
		}
		lowest = min(lowest, supports(a))
	}
	return lowest
}

// announcement is how a replica announces its levels.
type announcement interface {
	GetMinLevel() uint32
	GetMaxLevel() uint32
	GetVersion() string
}

// checkLevels refuses a replica whose build does not support the cluster's level.
func (s *Service) checkLevels(serverID string, a announcement) error {
	level, _ := s.level()
	switch {
	case supports(a) < level:
		return refused("%s", transport.LevelText(serverID,
			transport.Levels{Max: a.GetMaxLevel(), Version: a.GetVersion()}, uint32(level)))
	case fsm.Level(a.GetMinLevel()) > level:
		return refused("server %s runs dtask %s, which requires feature level %d, and the cluster is at level %d: "+
			"upgrade all members to the version before it first, and run dtaskctl cluster upgrade finish",
			serverID, a.GetVersion(), a.GetMinLevel(), level)
	}
	return nil
}

// UpgradeStatus implements ClusterService.
func (s *Service) UpgradeStatus(ctx context.Context, _ *dtaskv1.UpgradeStatusRequest) (*dtaskv1.UpgradeStatusResponse, error) {
	_, node, err := s.leading(ctx)
	if err != nil {
		return nil, err
	}
	servers := node.Servers()
	answers := s.askBuilds(ctx, servers)
	level, held := s.level()
	supported := supportedByAll(answers)
	resp := &dtaskv1.UpgradeStatusResponse{
		Level: uint32(level), Held: held, Supported: uint32(supported), State: upgradeComplete,
	}
	for i, m := range servers {
		resp.Members = append(resp.Members, memberStatus(m, answers[i], s.cfg.Machine.Index()))
	}
	uniform := isUniform(answers)
	switch {
	case !uniform:
		resp.State = upgradeMixed
	case supported > level:
		resp.State = upgradeReady
	}
	if supported > level && !held {
		resp.RaiseInMs = s.ready.raiseIn(supported, s.cfg.UpgradeAfter).Milliseconds()
	}
	if resp.GetState() != upgradeReady {
		resp.Next = nextToUpgrade(servers, answers, s.cfg.ServerID)
	}
	return resp, nil
}

// isUniform reports whether all members answer and run the same build.
func isUniform(answers []*dtaskv1.IdentifyResponse) bool {
	return !slices.ContainsFunc(answers, func(a *dtaskv1.IdentifyResponse) bool {
		return a == nil || compareBuilds(a, answers[0]) != 0
	})
}

// nextToUpgrade returns which member to restart with the newest build next: first those
// that do not answer, because a second one may cost the majority, and the leader last,
// because that changes the leader.
func nextToUpgrade(servers []raftnode.Server, answers []*dtaskv1.IdentifyResponse, leader string) string {
	known := slices.DeleteFunc(slices.Clone(answers), func(a *dtaskv1.IdentifyResponse) bool { return a == nil })
	newest := slices.MaxFunc(known, compareBuilds)
	uniform, next := isUniform(answers), ""
	for i, m := range servers {
		switch {
		case answers[i] == nil:
			return m.ID
		case !uniform && compareBuilds(answers[i], newest) == 0: // it is upgraded
		case next == "" || next == leader:
			next = m.ID
		}
	}
	return next
}

// compareBuilds orders builds by what they support, and then by their version.
func compareBuilds(a, b *dtaskv1.IdentifyResponse) int {
	return cmp.Or(cmp.Compare(supports(a), supports(b)), compareVersions(a.GetVersion(), b.GetVersion()))
}

// compareVersions compares runs of digits as numbers, and what is between them as text.
func compareVersions(a, b string) int {
	for a != "" && b != "" {
		var x, y string
		x, a = cutRun(a)
		y, b = cutRun(b)
		if isDigit(x[0]) && isDigit(y[0]) {
			x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
			if c := cmp.Compare(len(x), len(y)); c != 0 {
				return c
			}
		}
		if c := cmp.Compare(x, y); c != 0 {
			return c
		}
	}
	return cmp.Compare(a, b)
}

// cutRun cuts off the first run of digits or of other bytes; text is not empty.
func cutRun(text string) (run, rest string) {
	i := strings.IndexFunc(text, func(r rune) bool { return (r >= '0' && r <= '9') != isDigit(text[0]) })
	if i < 0 {
		return text, ""
	}
	return text[:i], text[i:]
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

// FinishUpgrade implements ClusterService. It is idempotent.
func (s *Service) FinishUpgrade(ctx context.Context, _ *dtaskv1.FinishUpgradeRequest) (*dtaskv1.FinishUpgradeResponse, error) {
	recorder, node, err := s.leading(ctx)
	if err != nil {
		return nil, err
	}
	servers := node.Servers()
	answers := s.askBuilds(ctx, servers)
	supported := supportedByAll(answers)
	if i := slices.Index(answers, nil); i >= 0 {
		return nil, refused("server %s does not answer, so its version is unknown: start it, or remove it from the cluster", servers[i].ID)
	}
	if i := slices.IndexFunc(answers, func(a *dtaskv1.IdentifyResponse) bool {
		return supports(a) < supports(slices.MaxFunc(answers, compareBuilds))
	}); i >= 0 {
		return nil, refused("server %s runs dtask %s, which supports feature levels up to %d: upgrade it first",
			servers[i].ID, answers[i].GetVersion(), supports(answers[i]))
	}
	resp := &dtaskv1.FinishUpgradeResponse{Level: uint32(supported)}
	err = s.changeLevel(ctx, recorder, func(level fsm.Level, held bool) *fsm.SetLevel {
		if resp.Already = level >= supported && !held; resp.GetAlready() {
			return nil
		}
		return &fsm.SetLevel{Level: max(level, supported)}
	})
	return resp, err
}

// HoldUpgrade implements ClusterService. It is idempotent.
func (s *Service) HoldUpgrade(ctx context.Context, r *dtaskv1.HoldUpgradeRequest) (*dtaskv1.HoldUpgradeResponse, error) {
	recorder, node, err := s.leading(ctx)
	if err != nil {
		return nil, err
	}
	servers := node.Servers()
	for i, a := range s.askBuilds(ctx, servers) {
		if a.GetMaxLevel() == 0 { // it would halt at the operation
			return nil, refused("server %s does not answer, or runs a version without feature levels: "+
				"start or upgrade it first; until then the level is not raised", servers[i].ID)
		}
	}
	resp := new(dtaskv1.HoldUpgradeResponse)
	err = s.changeLevel(ctx, recorder, func(level fsm.Level, held bool) *fsm.SetLevel {
		resp.Level, resp.Already = uint32(level), held != r.GetRelease()
		if resp.GetAlready() {
			return nil
		}
		return &fsm.SetLevel{Level: level, Held: !r.GetRelease()}
	})
	return resp, err
}

// changeLevel proposes a change of the level.
func (s *Service) changeLevel(ctx context.Context, recorder Recorder, decide func(level fsm.Level, held bool) *fsm.SetLevel) error {
	err := recorder.ChangeLevel(ctx, decide)
	if _, rejected := errors.AsType[*sequencer.RejectedError](err); rejected {
		return busy("the feature level changed meanwhile")
	}
	if err != nil {
		return fmt.Errorf("changing the feature level: %w", err)
	}
	return nil
}
