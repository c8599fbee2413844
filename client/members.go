package client

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// errOtherMachine is the error of a coordinator that is not asked because the client only
// has the socket of another one.
var errOtherMachine = errors.New("not asked: the socket of one coordinator does not lead to the others; log in, or ask on its machine")

// An askedReplica is a coordinator that is asked about itself.
type askedReplica struct {
	id   string // empty: unknown
	addr string
}

// A memberAnswer is what a coordinator answered about itself, or why it did not.
type memberAnswer[T any] struct {
	askedReplica

	value T
	err   error
}

// askMembers asks each coordinator about itself, concurrently, for at most limit each, and
// returns what came of it, ascending by server ID. It works without a leader. A coordinator
// that doesn't answer a ping within 3 s is not asked. idOf returns the server ID in an
// answer. The error is that of a client that nobody answered.
func askMembers[T any](ctx context.Context, c *Client, what string, limit time.Duration, ask func(context.Context, try) (T, error), idOf func(T) string) ([]memberAnswer[T], error) {
	targets, rest := c.members(ctx)
	answers := make([]memberAnswer[T], len(targets))
	var asking sync.WaitGroup
	for i, m := range targets {
		a := &answers[i]
		a.askedReplica = m
		asking.Go(func() {
			a.err = c.once(ctx, m.addr, limit, func(ctx context.Context, t try) (err error) {
				if err := ping(ctx, t); err != nil {
					return err
				}
				a.value, err = ask(ctx, t)
				return err
			})
		})
	}
	asking.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var why unanswered
	for i := range answers {
		if a := &answers[i]; a.err != nil {
			why = append(why, a.err)
		} else {
			a.id = idOf(a.value)
		}
	}
	if len(why) == len(answers) {
		return nil, why.as(what)
	}
	for _, m := range rest {
		if !slices.ContainsFunc(answers, func(a memberAnswer[T]) bool { return a.id == m.id }) {
			answers = append(answers, memberAnswer[T]{askedReplica: m, err: errOtherMachine}) //nolint:makezero // the first ones are complete
		}
	}
	slices.SortFunc(answers, func(a, b memberAnswer[T]) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.addr, b.addr)) })
	return answers, nil
}

// ping returns an error if a coordinator does not respond.
func ping(ctx context.Context, t try) error {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	_, err := t.cluster().Identify(ctx, &dtaskv1.IdentifyRequest{})
	if err != nil && answered(err) {
		return nil
	}
	return err
}

// members returns the coordinators to ask: those of the cluster, or the known addresses if
// no coordinator tells. With the socket of one machine, only that one can be asked; rest
// are all.
func (c *Client) members(ctx context.Context) (targets, rest []askedReplica) {
	known := c.book.order()
	local := slices.ContainsFunc(known, c.isLocalOnly)
	found, err := c.ClusterStatus(ctx)
	if err == nil {
		for _, m := range found.GetMembers() {
			targets = append(targets, askedReplica{m.GetId(), m.GetAddress()})
		}
	}
	if local {
		rest, targets = targets, nil
	}
	if len(targets) == 0 {
		for _, addr := range known {
			if !local || c.isLocalOnly(addr) {
				targets = append(targets, askedReplica{addr: addr})
			}
		}
	}
	return targets, rest
}
