package session

import (
	"context"
	"maps"
	"slices"

	grpcpeer "google.golang.org/grpc/peer"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// The conversions between the protocol's messages and the types of fsm and
// sequencer.

func helloOf(ctx context.Context, h *dtaskv1.Hello, g *Grant) sequencer.Hello {
	out := sequencer.Hello{
		Name: h.GetName(), Incarnation: h.GetIncarnation(), Slots: min(h.GetSlots(), 65535), Prefetch: min(h.GetPrefetch(), 65535),
		Version: h.GetVersion(), Address: h.GetAddress(), Peer: peerAddress(ctx), LockID: h.GetLockId(),
		Labels: g.labels(h), Resources: resources(h.GetResources()),
	}
	for _, a := range h.GetHeld() {
		out.Held = append(out.Held, sequencer.AttemptOf(a))
	}
	for _, a := range h.GetEnded() {
		out.Ended = append(out.Ended, sequencer.AttemptOf(a))
	}
	return out
}

// peerAddress returns the address of the connection that ctx belongs to, or "".
func peerAddress(ctx context.Context) string {
	p, ok := grpcpeer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	return p.Addr.String()
}

func attemptRef(a fsm.AttemptRef) *dtaskv1.AttemptRef {
	return &dtaskv1.AttemptRef{Job: uint64(a.Job), Task: a.Index, Attempt: a.Attempt}
}

func labels(m map[string]string) []fsm.Label {
	var list []fsm.Label
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if fsm.IsOwnLabel(k) {
			continue // reserved: see ownLabels
		}
		list = append(list, fsm.Label{Key: k, Value: m[k]})
	}
	return list
}

// ownLabels returns the labels that stand for types of tasks, or for secrets.
func ownLabels(key string, names []string) []fsm.Label {
	var list []fsm.Label
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		list = append(list, fsm.Label{Key: key, Value: name})
	}
	return list
}

func resources(m map[string]int64) []fsm.Resource {
	var list []fsm.Resource
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, fsm.Resource{Name: k, Amount: m[k]})
	}
	return list
}

func stops(list []sequencer.Stop) []*dtaskv1.Stop {
	var out []*dtaskv1.Stop
	for _, s := range list {
		out = append(out, &dtaskv1.Stop{Attempt: attemptRef(s.Attempt), Reason: s.Reason})
	}
	return out
}

func attemptRefs(list []fsm.AttemptRef) []*dtaskv1.AttemptRef {
	var out []*dtaskv1.AttemptRef
	for _, a := range list {
		out = append(out, attemptRef(a))
	}
	return out
}
