package client

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// statusLimit is how long ClusterStatus and Stats wait for coordinators; these
// answer within 2 s.
const statusTimeout = 3 * time.Second

// changeLimit is how long one try of a change of the members may take.
const changeLimit = 10 * time.Second

// WorkerFilter says which workers to list; empty fields mean all.
type WorkerFilter struct {
	Name  string // exact
	After string // id: only those that came to be known later
	Limit int    // how many at most; 0 = no limit
	Stale bool   // any replica may answer
}

// Workers lists the workers that the cluster knows, in the order in which it got to
// know them, page by page. It ends with the first error.
func (c *Client) Workers(ctx context.Context, f WorkerFilter) iter.Seq2[*dtaskv1.Worker, error] {
	req := &dtaskv1.ListWorkersRequest{Name: f.Name, Consistency: consistency(f.Stale)}
	return list(f.Limit, f.After, func(limit uint32, token string) (*dtaskv1.ListWorkersResponse, error) {
		req.Limit, req.PageToken = limit, token
		return call(ctx, c, operation{name: "listing workers"}, dtaskv1.AdminServiceClient.ListWorkers, req)
	}, (*dtaskv1.ListWorkersResponse).GetWorkers)
}

// ClusterStatus asks all known coordinators at the same time and returns the
// best answer within 3 s: one that has a leader, of the highest term. It works
// without a leader, and does not repeat: ErrUnreachable means that nobody
// answered now.
func (c *Client) ClusterStatus(ctx context.Context) (*dtaskv1.StatusResponse, error) {
	answers, why := askAll(ctx, c, c.book.order(), func(ctx context.Context, t try) (*dtaskv1.StatusResponse, error) {
		return t.cluster().Status(ctx, &dtaskv1.StatusRequest{})
	}, func(r *dtaskv1.StatusResponse) bool {
		return r.GetLeader() != "" && r.GetLeader() == r.GetReplica() // from the leader itself
	})
	var best *dtaskv1.StatusResponse
	for _, a := range answers {
		withoutDeadLeader(a.value)
		if best == nil || compareStatus(a.value, best) > 0 {
			best = a.value
		}
	}
	if best == nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, &Error{Kind: ErrUnreachable, Message: "asking for the cluster's status: no coordinator answered: " + why}
	}
	for _, m := range best.GetMembers() {
		c.book.learn(m.GetAddress())
	}
	return best, nil
}

// AddMember lets a coordinator in that waits at an address, with an empty folder and
// under a new id. It gets a vote once it has caught up; voter tells that it has it.
// An id that was removed is ErrRefused.
func (c *Client) AddMember(ctx context.Context, id, address string) (voter bool, err error) {
	req := &dtaskv1.AddMemberRequest{ServerId: id, Address: address}
	got, err := call(ctx, c, operation{name: "adding the member", timeout: changeLimit}, dtaskv1.ClusterServiceClient.AddMember, req)
	return got.GetVoter(), err
}

// RemoveMember removes a coordinator for good; already tells that it was removed
// before. It is ErrRefused if those that are left and answer would be no majority.
func (c *Client) RemoveMember(ctx context.Context, id string) (already bool, err error) {
	req := &dtaskv1.RemoveMemberRequest{ServerId: id}
	got, err := call(ctx, c, operation{name: "removing the member", timeout: changeLimit}, dtaskv1.ClusterServiceClient.RemoveMember, req)
	return got.GetAlreadyRemoved(), err
}

// TransferLeadership hands leadership to a coordinator; an empty id leaves the choice
// to the leader.
func (c *Client) TransferLeadership(ctx context.Context, id string) error {
	req := &dtaskv1.TransferLeadershipRequest{ServerId: id}
	_, err := call(ctx, c, operation{name: "handing leadership over", timeout: changeLimit}, dtaskv1.ClusterServiceClient.TransferLeadership, req)
	return err
}

// withoutDeadLeader takes back the name of a leader that the same answer calls
// unreachable.
func withoutDeadLeader(r *dtaskv1.StatusResponse) {
	for _, m := range r.GetMembers() {
		if m.GetId() == r.GetLeader() && m.GetState() == "unreachable" {
			r.Leader = ""
		}
	}
}

func compareStatus(a, b *dtaskv1.StatusResponse) int {
	led := func(r *dtaskv1.StatusResponse) int {
		if r.GetLeader() == "" {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(led(a), led(b)), cmp.Compare(a.GetTerm(), b.GetTerm()))
}

// ReplicaStats are the counters of one replica since it started.
type ReplicaStats struct {
	Address string
	Stats   *dtaskv1.StatsResponse
}

// Stats returns the counters of all replicas that answer within 3 s, by
// address. Replicas that are away are left out.
func (c *Client) Stats(ctx context.Context) ([]ReplicaStats, error) {
	addrs := c.book.order()
	if st, err := c.ClusterStatus(ctx); err == nil && len(st.GetMembers()) > 0 {
		addrs = addrs[:0]
		for _, m := range st.GetMembers() {
			addrs = append(addrs, m.GetAddress())
		}
	}
	answers, why := askAll(ctx, c, addrs, func(ctx context.Context, t try) (*dtaskv1.StatsResponse, error) {
		return t.admin().Stats(ctx, &dtaskv1.StatsRequest{})
	}, nil)
	if len(answers) == 0 {
		return nil, &Error{Kind: ErrUnreachable, Message: "reading counters: no coordinator answered: " + why}
	}
	out := make([]ReplicaStats, 0, len(answers))
	for _, a := range answers {
		out = append(out, ReplicaStats{Address: a.addr, Stats: a.value})
	}
	slices.SortFunc(out, func(a, b ReplicaStats) int { return cmp.Compare(a.Address, b.Address) })
	return out, nil
}

// Identify asks any coordinator who it is, and does not repeat.
func (c *Client) Identify(ctx context.Context) (*dtaskv1.IdentifyResponse, error) {
	answers, why := askAll(ctx, c, c.book.order(), func(ctx context.Context, t try) (*dtaskv1.IdentifyResponse, error) {
		return t.cluster().Identify(ctx, &dtaskv1.IdentifyRequest{})
	}, func(*dtaskv1.IdentifyResponse) bool { return true })
	if len(answers) == 0 {
		return nil, &Error{Kind: ErrUnreachable, Message: "no coordinator answered: " + why}
	}
	return answers[0].value, nil
}

// An answer is what the coordinator at addr said.
type answer[T any] struct {
	addr  string
	value T
	err   error
}

// askAll asks all addresses at the same time and returns the answers that came
// within statusLimit, or up to the first that is enough; and why the others did
// not come. All that it started has ended when it returns.
func askAll[T any](ctx context.Context, c *Client, addrs []string, ask func(context.Context, try) (T, error), enough func(T) bool) ([]answer[T], string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer[T], len(addrs)) // one each, so that nobody waits to send
	var asking sync.WaitGroup
	for _, addr := range addrs {
		asking.Go(func() {
			a := answer[T]{addr: addr}
			a.err = c.once(ctx, addr, func(ctx context.Context, t try) (err error) {
				a.value, err = ask(ctx, t)
				return err
			})
			answers <- a
		})
	}
	var good []answer[T]
	var errs []string
	for range addrs {
		a := <-answers
		if a.err != nil {
			errs = append(errs, a.err.Error())
			continue
		}
		good = append(good, a)
		if enough != nil && enough(a.value) {
			break
		}
	}
	cancel()
	asking.Wait()
	return good, strings.Join(errs, "; ")
}
