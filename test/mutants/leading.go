package mutants

// inLeading returns the mistakes in leadership, reads and clients.
func inLeading() []Mutant {
	return []Mutant{
		{
			Name:   "reads-are-not-confirmed",
			Edits:  []Edit{{"coordinator/raftnode/read.go", `if err := proposeError(r.view, r.raft.Barrier(r.timeout).Error()); err != nil {`, `if err := proposeError(r.view, nil); err != nil {`}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "Read|Linear|Isolat"}},
		},
		{
			Name:   "the-term-is-not-looked-at-again",
			Edits:  []Edit{{"coordinator/api/consistency.go", `if raft.Term() != term || started != term {`, `if raft.Term() != term && started != term {`}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "Linearizable|Deposed"}},
		},
		{
			Name:   "who-cannot-lead-stays-leader",
			Edits:  []Edit{{"coordinator/leader/leader.go", "for c.Raft.Leading() {", "for !c.Raft.Leading() {"}},
			Caught: []Checker{{Package: "./coordinator/leader", Run: "."}},
		},
		{
			Name:   "a-leader-resigns-before-it-is-doubted",
			Edits:  []Edit{{"coordinator/raftnode/node.go", `LeaderLeaseTimeout: n.cfg.Heartbeat,`, `LeaderLeaseTimeout: n.cfg.Heartbeat / 2,`}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "MessagesAreLate"}},
		},
		{
			Name:   "one-reset-link-deposes-a-leader",
			Edits:  []Edit{{"coordinator/raftnode/failover.go", `return rank, !election && lost > (len(others)+2)/2`, `return rank, !election && lost > 0`}, {"coordinator/raftnode/failover.go", "f.stoodIn.Load() >= term || f.transport.HasConnectionFrom(leader.ID) {\n\t\treturn false\n\t}\n\trank, agreed", "f.stoodIn.Load() >= term {\n\t\treturn false\n\t}\n\trank, agreed"}},
			Caught: []Checker{{Package: "./coordinator/raftnode", Run: "Election|Failover|Reset|Quick|Leader"}},
		},
		{
			Name:   "a-known-address-waits-for-the-name-server",
			Edits:  []Edit{{"coordinator/transport/dialer.go", `			r.add(known)`, `			r.add(known[:0])`}},
			Caught: []Checker{{Package: "./coordinator/transport", Run: "NameServer"}},
		},
		{
			Name:   "a-name-is-not-looked-up-again-without-an-answer",
			Edits:  []Edit{{"coordinator/transport/names.go", `now.Sub(h.began) >= lookupInterval`, `now.Sub(h.began) >= lookupTimeout`}},
			Caught: []Checker{{Package: "./coordinator/transport", Run: "NameServer"}},
		},
		{
			Name:   "the-fast-path-gives-up-on-a-slow-link",
			Edits:  []Edit{{"coordinator/transport/links.go", `return min(minAskTimeout+askRoundTrips*l.longest(), maxAskTimeout)`, `return minAskTimeout`}},
			Caught: []Checker{{Package: "./test/simulation", Run: "DistantLeader"}},
		},
		{
			Name:   "an-election-opens-its-connections-first",
			Edits:  []Edit{{"coordinator/transport/links.go", `		c := l.pop(magic, p)`, `		c := (*idleConn)(nil)`}},
			Caught: []Checker{{Package: "./test/simulation", Run: "DistantLeader"}},
		},
		{
			Name: "a-kept-connection-that-broke-is-used",
			Edits: []Edit{{"coordinator/transport/links.go", `		return errors.Join(net.ErrClosed, err)
`, ``}, {"coordinator/transport/links.go", "		if l.remove(c) {\n			_ = c.Close() // it broke\n		}\n", ""}},
			Caught: []Checker{{Package: "./coordinator/transport", Run: "KeptConnection"}},
		},
		{
			Name:   "replicas-that-differ-are-not-found",
			Edits:  []Edit{{"coordinator/membership/digest.go", `if slices.Contains(other.ids, self) {`, `if slices.Contains(other.ids, self) && total == 0 {`}},
			Caught: []Checker{{Package: "./coordinator/membership", Run: "Differ|Flipped|Alarm"}},
		},
		{
			Name: "an-end-is-noticed-at-the-next-message-only",
			Edits: []Edit{{"fsm/subscriptions.go", `	if ended {
		signal(s.ended)`, `	if ended && s.links == nil {
		signal(s.ended)`}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "MomentItEnds|FinishTogether"}, {Package: "./fsm", Run: "ASubscriptionSignals"}},
		},
		{
			Name:   "a-restored-snapshot-wakes-no-watch",
			Edits:  []Edit{{"fsm/machine.go", "	m.subscriptions.signalAll()\n", ""}},
			Caught: []Checker{{Package: "./fsm", Run: "RestoredSnapshotIsSignaled"}},
		},
		{
			Name:   "all-watches-wake-at-every-entry",
			Edits:  []Edit{{"fsm/machine.go", "	m.subscriptions.signal(m.state, m.touched)", "	m.subscriptions.signalAll()"}},
			Caught: []Checker{{Package: "./fsm", Run: "ASubscriptionSignals"}},
		},
		{
			Name:   "an-unknown-outcome-gets-a-new-key",
			Edits:  []Edit{{"client/submit.go", `IdempotencyKey: u.result.Key,`, `IdempotencyKey: newKey(),`}},
			Caught: []Checker{{Package: "./client", Run: "UnknownOutcome"}},
		},
		{
			Name: "a-repeated-retry-gets-a-new-key",
			Edits: []Edit{{"client/retry.go", `got, err := call(ctx, c, op, dtaskv1.JobServiceClient.Retry, req)`, `method := func(s dtaskv1.JobServiceClient, ctx context.Context, r *dtaskv1.RetryRequest, _ ...grpc.CallOption) (*dtaskv1.RetryResponse, error) {
		r.IdempotencyKey = newKey()
		return s.Retry(ctx, r)
	}
	got, err := call(ctx, c, op, method, req)`}, {"client/retry.go", `	"google.golang.org/protobuf/proto"`, `	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"`}},
			Caught: []Checker{{Package: "./client", Run: "UnknownOutcome"}},
		},
		{
			Name: "a-cancelled-submission-ends-the-shared-stream",
			Edits: []Edit{{"client/submit_stream.go", `	sent := b.sent
`, `	sent := b.sent
	s.cancel(st.Err())
`}},
			Caught: []Checker{{Package: "./client", Run: "CancelledSubmission"}},
		},
		{
			Name: "a-busy-job-of-a-shared-message-is-not-submitted-again",
			Edits: []Edit{{"client/submit.go", `	if j.next != fail {
		return again
	}
	u.result.Err`, `	u.result.Err`}},
			Caught: []Checker{{Package: "./client", Run: "Concurrent|ManyJobs"}},
		},
	}
}
