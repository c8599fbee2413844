package mutants

// inIdentities returns mistakes with which a credential counts that must not, or a join
// token creates more than it may.
func inIdentities() []Mutant {
	return []Mutant{
		{
			Name:   "dates-refuse-replicas",
			Edits:  []Edit{{"internal/tlsconf/server.go", "		p.checkDates(serverID, chain)\n		return nil\n", "		if err := chainDates(serverID, chain, p.now()); err != nil {\n			return err\n		}\n		return nil\n"}},
			Caught: []Checker{{Package: "./coordinator/transport", Run: "TestAWrongClockRefusesNoReplica"}},
		},
		{
			Name:   "a-recorded-key-is-not-checked",
			Edits:  []Edit{{"coordinator/transport/admission.go", "len(keys) > 0 && !slices.Contains(keys, p.key)", "len(keys) > 0 && p.certified == \"\""}},
			Caught: []Checker{{Package: "./coordinator/transport", Run: "TestStrangersAreRefused|TestAServerThatDoesNotHaveTheRecordedKey"}},
		},
		{
			Name:   "a-revoked-credential-counts",
			Edits:  []Edit{{"fsm/identity.go", "	if i.IsRevoked() {\n		return\n	}\n	t.names.set", "	t.names.set"}},
			Caught: []Checker{{Package: "./fsm", Run: "ARevokedIdentity"}},
		},
		{
			Name:   "a-repeated-request-counts-twice",
			Edits:  []Edit{{"fsm/op_join_token.go", "	if known, r := s.identities.repeated(i); known {\n		return r\n	}\n", ""}},
			Caught: []Checker{{Package: "./fsm", Run: "ARepeatedRequest"}, {Package: "./coordinator/sequencer", Run: "AJoinTokenIsRedeemed"}},
		},
		{
			Name:   "a-use-of-a-join-token-is-not-counted",
			Edits:  []Edit{{"fsm/op_join_token.go", "		x.Used++\n", ""}},
			Caught: []Checker{{Package: "./fsm", Run: "TheLastUse"}},
		},
		{
			Name:   "a-join-string-replaces-an-admin",
			Edits:  []Edit{{"fsm/op_join_token.go", `o.Replace && x.Purpose == JoinWorker`, `o.Replace`}},
			Caught: []Checker{{Package: "./fsm", Run: "OnlyAWorkerIsReplaced"}},
		},
		{
			Name:   "a-revocation-in-a-snapshot-is-not-signaled",
			Edits:  []Edit{{"fsm/machine.go", "	m.subscriptions.signalAll()\n	m.identityWatches.signal()\n", "	m.subscriptions.signalAll()\n"}},
			Caught: []Checker{{Package: "./fsm", Run: "AWatchSignals"}},
		},
		{
			Name:   "the-old-ca-is-dropped-although-a-worker-lacks-the-new-one",
			Edits:  []Edit{{"coordinator/access/rotate_ca.go", "	for _, name := range status.GetWorkersLacking() {\n		names = append(names, \"worker \"+name)\n	}\n", ""}},
			Caught: []Checker{{Package: "./coordinator/access", Run: "TheOldCAIsDroppedOnly"}},
		},
		{
			Name:   "a-revoked-worker-keeps-its-attempts",
			Edits:  []Edit{{"coordinator/sequencer/sequencer.go", "	s.fencing.revoked(b) // first: what it requeues becomes ready below\n", ""}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "ARevokedWorkerIsFenced"}},
		},
		{
			Name:   "a-revoked-token-is-remembered",
			Edits:  []Edit{{"coordinator/access/tokens.go", "	s.cfg.Registry.endRevoked() // before the answer: nothing that is sent after it is let in here\n", ""}},
			Caught: []Checker{{Package: "./coordinator/access", Run: "IsRefusedAfterTheAnswer"}},
		},
		{
			Name:   "a-call-ends-without-the-reason-when-its-access-ends",
			Edits:  []Edit{{"coordinator/access/calls.go", "	time.AfterFunc(cutDelay, c.cut)\n", "	c.cut()\n"}},
			Caught: []Checker{{Package: "./coordinator/access", Run: "ACallThatDoesNotEndWithItsAccess"}, {Package: "./coordinator/api", Run: "AnUploadWhoseCallerLosesAccess"}},
		},
		{
			Name:   "a-stream-whose-handler-waits-outlives-its-access",
			Edits:  []Edit{{"coordinator/api/lost_access.go", "lost(ctx)", "_ = lost"}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "AStreamEndsWithTheReason|AnUploadWhoseCallerLosesAccess"}},
		},
		{
			Name:   "the-clock-of-the-leader-decides-about-access",
			Edits:  []Edit{{"coordinator/identities.go", "Now: r.clusterClock.now,", "Now: r.cfg.Wall,"}},
			Caught: []Checker{{Package: "./coordinator", Run: "TestAccessFollowsTheClockOfTheMajority"}},
		},
		{
			Name:   "a-client-returns-to-a-dropped-ca",
			Edits:  []Edit{{"client/follow_ca.go", "return !lastMade(added).Before(lastMade(trusted))", "return true"}},
			Caught: []Checker{{Package: "./client", Run: "TestAClientFollowsARotation"}},
		},
		{
			Name:   "a-revoked-coordinator-joins-again",
			Edits:  []Edit{{"coordinator/access/join.go", "if identity.GetState() == stateRevoked {", "if identity.GetState() == stateUsedUp {"}},
			Caught: []Checker{{Package: "./coordinator/access", Run: "TestNobodyJoinsAgain"}},
		},
		{
			Name:   "a-connection-survives-the-ca-of-its-peer",
			Edits:  []Edit{{"internal/tlsconf/replica.go", "	_, _, err := r.verify(state, x509.ExtKeyUsageAny)\n	return err == nil\n", "	return true\n"}},
			Caught: []Checker{{Package: "./coordinator/transport", Run: "ConnectionsEndWithTheCAOfTheirPeer|AConnectionWhoseCAIsDropped"}},
		},
		{
			Name:   "a-dropped-ca-ends-the-links-of-raft",
			Edits:  []Edit{{"coordinator/renew_links.go", "left := node.RenewLinks(ctx, r.peerCreds)", "left := 0"}},
			Caught: []Checker{{Package: "./coordinator", Run: "TestTheConnectionsOfReplicasDoNotNeedTheOldCA"}},
		},
		{
			Name:   "the-old-ca-is-dropped-before-connections-are-replaced",
			Edits:  []Edit{{"coordinator/renew_links.go", "if !current.IsReplacing() || ", "if true || "}},
			Caught: []Checker{{Package: "./coordinator", Run: "TestTheConnectionsOfReplicasDoNotNeedTheOldCA"}},
		},
		{
			Name:   "a-connection-ends-while-its-peer-has-the-old-ca",
			Edits:  []Edit{{"coordinator/transport/renew_links.go", "c == nil || c.IsOutdated(now)", "c == nil"}},
			Caught: []Checker{{Package: "./coordinator/transport", Run: "TestConnectionsOfTheOldCAAreReplaced"}},
		},
		{
			Name:   "a-worker-confirms-a-ca-before-it-connects-by-it",
			Edits:  []Edit{{"worker/trust.go", "	if t.GetReconnectWithinMs() > 0 &&", "	if t.GetReconnectWithinMs() < 0 &&"}},
			Caught: []Checker{{Package: "./worker", Run: "TestAWorkerThatWillConnectAgainConfirmsNothing"}},
		},
	}
}
