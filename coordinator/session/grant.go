package session

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A Grant is what the identity of a worker allows it. A worker gets only attempts of jobs
// in its namespaces, and is selected only by labels that it was granted: otherwise one
// that calls itself zone=secure would get the tasks that require that label.
type Grant struct {
	// Labels are those by which tasks select the worker, whichever of them it announced.
	// One that announces another label is refused.
	Labels map[string]string
	// AnyLabels lets the worker choose its own labels, and Labels is ignored: the cluster
	// has no identities.
	AnyLabels bool
	// Namespaces are those that the worker serves: names, or auth.AllNamespaces alone. A
	// worker without any is refused.
	Namespaces []string
}

// ungranted is the grant of all workers of a cluster without identities.
var ungranted = Grant{AnyLabels: true, Namespaces: []string{auth.AllNamespaces}}

// RefusedError is returned to a worker whose identity does not allow what its hello
// announces. Its stream and the other sessions on it continue.
type RefusedError struct {
	Worker string
	Label  string // key=value that was not granted; empty: the worker has no namespace
}

// Error names the worker, and what an admin can do.
func (e *RefusedError) Error() string {
	if e.Label == "" {
		return fmt.Sprintf("session: worker %q may serve no namespace: let it join with a join string that names one", e.Worker)
	}
	return fmt.Sprintf("session: worker %q announces the label %s, which it was not granted: remove it from --label, "+
		"or let the worker join with a join string that grants it", e.Worker, e.Label)
}

// authorize returns what a worker may do, or why its session is refused.
func (s *Service) authorize(ctx context.Context, h *dtaskv1.Hello) (Grant, error) {
	if s.cfg.Authorize == nil {
		return ungranted, nil
	}
	g, err := s.cfg.Authorize(ctx, h)
	if err != nil {
		return g, err
	}
	if len(g.Namespaces) == 0 {
		return g, &RefusedError{Worker: h.GetName()}
	}
	if g.AnyLabels {
		return g, nil
	}
	for _, key := range slices.Sorted(maps.Keys(h.GetLabels())) {
		value := h.GetLabels()[key]
		if granted, ok := g.Labels[key]; !ok || granted != value {
			return g, &RefusedError{Worker: h.GetName(), Label: key + "=" + value}
		}
	}
	return g, nil
}

// labels returns the labels that the state gets of a worker with this grant.
func (g *Grant) labels(h *dtaskv1.Hello) []fsm.Label {
	chosen := g.Labels
	if g.AnyLabels {
		chosen = h.GetLabels()
	}
	var namespaces []string
	if !slices.Contains(g.Namespaces, auth.AllNamespaces) {
		namespaces = g.Namespaces
	}
	return slices.Concat(labels(chosen), ownLabels(fsm.NamespaceLabel, namespaces),
		reservedLabel(h), ownLabels(fsm.SecretLabel, h.GetSecrets()), ownLabels(fsm.TypeLabel, h.GetTypes()))
}

// reservedLabel returns the label of a worker that takes only tasks which require one of its
// labels.
func reservedLabel(h *dtaskv1.Hello) []fsm.Label {
	if !h.GetReserved() {
		return nil
	}
	return ownLabels(fsm.ReservedLabel, []string{"true"})
}

// EndSessions ends the sessions of all workers whose name matches, with an error that they
// get. A worker that is opening a session meanwhile is authorized again when it is open.
func (s *Service) EndSessions(match func(workerName string) bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.open {
		if match(x.name) {
			x.Close(err)
		}
	}
}
