package client

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// statusTimeout is how long ClusterStatus and Stats wait for coordinators,
// which respond within 2 s.
const statusTimeout = 3 * time.Second

// changeLimit is the timeout of one attempt to change the membership.
const changeLimit = 10 * time.Second

// WorkerFilter selects workers. Empty fields match all.
type WorkerFilter struct {
	Name  string                   // exact
	After string                   // ID: only workers that registered later
	Limit int                      // 0 = no limit
	Stale bool                     // any replica may answer
	Fresh func(*dtaskv1.Freshness) // as in ReadOptions
}

// Workers lists workers in the order in which they first registered. It ends
// with the first error.
func (c *Client) Workers(ctx context.Context, f WorkerFilter) iter.Seq2[*dtaskv1.Worker, error] {
	req := &dtaskv1.ListWorkersRequest{Name: f.Name, Consistency: consistency(f.Stale)}
	return list(f.Limit, f.After, func(limit uint32, token string) (*dtaskv1.ListWorkersResponse, error) {
		req.Limit, req.PageToken = limit, token
		got, err := call(ctx, c, operation{name: "listing workers"}, dtaskv1.AdminServiceClient.ListWorkers, req)
		report(f.Fresh, got.GetFreshness())
		return got, err
	}, (*dtaskv1.ListWorkersResponse).GetWorkers)
}

// ClusterStatus asks all known coordinators concurrently and returns the best
// response within 3 s: one that names a leader, of the highest term. It works
// without a leader and does not retry. ErrUnreachable means that no
// coordinator responded.
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
		return nil, why.as("reading the cluster status")
	}
	for _, m := range best.GetMembers() {
		c.book.learn(m.GetAddress())
	}
	return best, nil
}

// AddMember adds the coordinator at an address, which must run with an empty
// data directory and a new ID. It becomes a voter after it has caught up;
// voter reports whether it has. The error is ErrRefused for an ID that was
// removed.
func (c *Client) AddMember(ctx context.Context, id, address string) (voter bool, err error) {
	req := &dtaskv1.AddMemberRequest{ServerId: id, Address: address}
	got, err := call(ctx, c, operation{name: "adding the member", timeout: changeLimit}, dtaskv1.ClusterServiceClient.AddMember, req)
	return got.GetVoter(), err
}

// RemoveMember removes a coordinator permanently. already reports whether an
// earlier call removed it. The error is ErrRefused if the remaining reachable
// members would not be a majority.
func (c *Client) RemoveMember(ctx context.Context, id string) (already bool, err error) {
	req := &dtaskv1.RemoveMemberRequest{ServerId: id}
	got, err := call(ctx, c, operation{name: "removing the member", timeout: changeLimit}, dtaskv1.ClusterServiceClient.RemoveMember, req)
	return got.GetAlreadyRemoved(), err
}

// TransferLeadership transfers leadership to a coordinator; the leader chooses
// one if id is empty.
func (c *Client) TransferLeadership(ctx context.Context, id string) error {
	req := &dtaskv1.TransferLeadershipRequest{ServerId: id}
	_, err := call(ctx, c, operation{name: "handing leadership over", timeout: changeLimit}, dtaskv1.ClusterServiceClient.TransferLeadership, req)
	return err
}

// AuditHeads returns the last line of each coordinator's audit log that the cluster
// knows, ascending by server ID.
func (c *Client) AuditHeads(ctx context.Context) ([]*dtaskv1.AuditHead, error) {
	got, err := call(ctx, c, operation{name: "reading the heads of the audit logs", timeout: changeLimit},
		dtaskv1.ClusterServiceClient.AuditHeads, &dtaskv1.AuditHeadsRequest{})
	return got.GetHeads(), err
}

// UpgradeStatus returns the feature level of the cluster, those that its members
// support, and what happens next.
func (c *Client) UpgradeStatus(ctx context.Context) (*dtaskv1.UpgradeStatusResponse, error) {
	return call(ctx, c, operation{name: "reading the upgrade status", timeout: changeLimit},
		dtaskv1.ClusterServiceClient.UpgradeStatus, &dtaskv1.UpgradeStatusRequest{})
}

// FinishUpgrade raises the cluster's feature level to the highest one that all members
// support, and releases a hold. Older versions cannot be members afterwards. The
// error is ErrRefused while a member runs an older version or does not respond.
func (c *Client) FinishUpgrade(ctx context.Context) (*dtaskv1.FinishUpgradeResponse, error) {
	return call(ctx, c, operation{name: "finishing the upgrade", timeout: changeLimit},
		dtaskv1.ClusterServiceClient.FinishUpgrade, &dtaskv1.FinishUpgradeRequest{})
}

// HoldUpgrade keeps the leader from raising the feature level by itself. With release,
// it ends such a hold. The error is ErrRefused if a member does not respond.
func (c *Client) HoldUpgrade(ctx context.Context, release bool) (*dtaskv1.HoldUpgradeResponse, error) {
	return call(ctx, c, operation{name: "holding the upgrade", timeout: changeLimit},
		dtaskv1.ClusterServiceClient.HoldUpgrade, &dtaskv1.HoldUpgradeRequest{Release: release})
}

// SetClusterName names the cluster: 1–63 letters, digits and -, neither beginning nor ending
// with -. Empty removes the name. The error is ErrRefused below the feature level that names
// need.
func (c *Client) SetClusterName(ctx context.Context, name string) (*dtaskv1.SetClusterNameResponse, error) {
	return call(ctx, c, operation{name: "naming the cluster", timeout: changeLimit},
		dtaskv1.ClusterServiceClient.SetClusterName, &dtaskv1.SetClusterNameRequest{Name: name})
}

// withoutDeadLeader removes the name of a leader that the same response
// reports as unreachable.
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

// Stats returns the counters of all replicas that respond within 3 s, by
// address.
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
		return nil, why.as("reading counters")
	}
	out := make([]ReplicaStats, 0, len(answers))
	for _, a := range answers {
		out = append(out, ReplicaStats{Address: a.addr, Stats: a.value})
	}
	slices.SortFunc(out, func(a, b ReplicaStats) int { return cmp.Compare(a.Address, b.Address) })
	return out, nil
}

// Identify returns the identity of any coordinator. It does not retry.
func (c *Client) Identify(ctx context.Context) (*dtaskv1.IdentifyResponse, error) {
	answers, why := askAll(ctx, c, c.book.order(), func(ctx context.Context, t try) (*dtaskv1.IdentifyResponse, error) {
		return t.cluster().Identify(ctx, &dtaskv1.IdentifyRequest{})
	}, func(*dtaskv1.IdentifyResponse) bool { return true })
	if len(answers) == 0 {
		return nil, why.as("identifying a coordinator")
	}
	return answers[0].value, nil
}

// An answer is the response of the coordinator at addr.
type answer[T any] struct {
	addr  string
	value T
	err   error
}

// askAll asks all addresses concurrently. It returns the responses that arrive
// within statusTimeout, or up to the first that is enough, and the errors of
// the others. It waits for all goroutines that it starts.
func askAll[T any](ctx context.Context, c *Client, addrs []string, ask func(context.Context, try) (T, error), enough func(T) bool) ([]answer[T], unanswered) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer[T], len(addrs)) // has capacity for all, so that senders never block
	var asking sync.WaitGroup
	for _, addr := range addrs {
		asking.Go(func() {
			a := answer[T]{addr: addr}
			a.err = c.once(ctx, addr, statusTimeout, func(ctx context.Context, t try) (err error) {
				a.value, err = ask(ctx, t)
				return err
			})
			answers <- a
		})
	}
	var good []answer[T]
	var errs unanswered
	for range addrs {
		a := <-answers
		if a.err != nil {
			errs = append(errs, a.err)
			continue
		}
		good = append(good, a)
		if enough != nil && enough(a.value) {
			break
		}
	}
	cancel()
	asking.Wait()
	return good, errs
}

// unanswered are the errors of coordinators that were asked.
type unanswered []error

// as returns the error of an operation for which no coordinator has sent an answer. What one
// of them refuses, all would: that outranks those that are silent, and followers that only
// name the leader, as one does that doesn't know a new token yet.
func (u unanswered) as(what string) error {
	texts, kinds := make([]string, 0, len(u)+1), make([]error, 0, len(u))
	for _, err := range u {
		kind := ErrUnreachable
		if once, ok := errors.AsType[*onceError](err); ok {
			kind = once.kind
		}
		if kind == ErrRefused || kind == ErrUnauthenticated { //nolint:errorlint // the kinds themselves
			return &Error{Kind: kind, Message: what + ": " + err.Error()}
		}
		texts, kinds = append(texts, err.Error()), append(kinds, kind)
	}
	if slices.Contains(kinds, ErrForeignCluster) {
		texts = append(texts, foreignAdvice)
	}
	if kinds = slices.Compact(kinds); len(kinds) != 1 {
		kinds = []error{ErrUnreachable}
	}
	return &Error{Kind: kinds[0], Message: what + ": no coordinator responded: " + strings.Join(texts, "; ")}
}
