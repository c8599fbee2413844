package fsm

import "fmt"

// hashCount is how many different hashes random operations have.
const hashCount = 12

// identity makes an operation on identities, join tokens, trust, audit logs or
// backups. Times are small, so that credentials and tokens expire while others are made.
func (g *generator) identity(s *State) Op {
	switch g.choose(19) {
	case 0, 1, 2:
		return &CreateIdentity{
			Name: g.name(), Grant: g.grant(Role(1 + g.choose(7))), Credential: g.credential(s),
			CreatedBy: "alice", CreatedMS: g.at(s), Key: g.key(),
		}
	case 3, 4:
		return &AddCredential{ID: g.identityID(s), Credential: g.credential(s), CreatedMS: g.at(s), OthersExpireMS: int64(g.odd(2, 3)-1) * (s.now + 5)}
	case 5:
		o := &RevokeIdentity{IDs: []IdentityID{g.identityID(s)}, AtMS: g.at(s), By: "bob"}
		if g.choose.one(4) {
			o.IDs = append(o.IDs, g.identityID(s))
		}
		return o
	case 6:
		o := &DropCredential{ID: g.identityID(s), Hash: g.hash()}
		if i := s.Identity(o.ID); i != nil && !g.choose.one(4) {
			o.Hash = i.Credentials[0].Hash
		}
		return o
	case 7, 8:
		return g.createJoinToken(s)
	case 9, 10, 11:
		return g.redeem(s)
	case 12:
		return &RevokeJoinToken{ID: g.tokenID(s), AtMS: g.at(s), By: "bob"}
	case 13:
		o := &SetTrust{AtMS: g.at(s)}
		for range g.odd(3, 6) {
			o.Roots = append(o.Roots, make([]byte, []int{1, 2, 3, maxRoot, 0, maxRoot + 1}[g.odd(3, 6)]))
		}
		return o
	case 14:
		o := &PinReplica{ServerID: fmt.Sprintf("n%d", g.choose(3))}
		for range g.odd(2, 4) {
			o.KeyHashes = append(o.KeyHashes, g.hash())
		}
		return o
	case 15:
		return &RecordAuditHead{AuditHead{ServerID: fmt.Sprintf("n%d", g.choose(3)), Seq: uint64(g.choose(40)), Hash: g.hash(), AtMS: g.at(s)}}
	case 16, 17:
		return g.backup(s)
	default:
		return &ForgetIdentities{BeforeMS: s.now - int64(g.choose(30)), Max: uint32(g.odd(4, 5))}
	}
}

// backup makes an operation on the schedule of backups, or on the name of the cluster.
func (g *generator) backup(s *State) Op {
	to := []string{"file:///a", "file:///b", ""}[g.odd(2, 3)]
	switch g.choose(7) {
	case 6:
		return &SetClusterName{Name: []string{"prod", "eu-1", "", "-prod", "a.b"}[g.odd(3, 5)]}
	case 0, 1:
		return &SetBackupSchedule{BackupSchedule{EveryMS: int64(g.choose(4)) * 1000, To: to, Keep: uint32(g.choose(3)), AtMS: g.at(s)}}
	case 2:
		return &DeleteBackupSchedule{}
	default:
		schedule, _ := s.BackupSchedule()
		r := BackupRun{ScheduleMS: schedule.AtMS, AtMS: g.at(s), ServerID: "n2", To: to, File: "state-1.dtbk", Index: 1, Bytes: uint64(g.choose(9))}
		if g.choose.one(3) {
			r.File, r.Error = "", "no space"
		}
		if g.choose.one(8) {
			r.ServerID = ""
		}
		return &RecordBackup{r}
	}
}

// at is the time of an operation: mostly that of the entry before, plus a little.
func (g *generator) at(s *State) int64 {
	if g.choose.one(20) {
		return 0
	}
	return max(1, s.now+int64(g.choose(5)))
}

func (g *generator) hash() [32]byte {
	if g.choose.one(40) {
		return [32]byte{}
	}
	return hashed(byte(g.choose(hashCount)))
}

func (g *generator) key() string { return []string{"", "a", "b"}[g.choose(3)] }

func (g *generator) name() string {
	return []string{"w1", "w2", "ci", "a b", ""}[g.odd(3, 5)]
}

func (g *generator) grant(r Role) Grant {
	grant := Grant{Role: r, Namespaces: [][]string{nil, {"*"}, {"etl", "ml"}, {"ml", "etl"}, {"*", "etl"}, {""}}[g.odd(3, 6)]}
	if g.choose.one(40) {
		grant.Role = []Role{0, 8}[g.choose(2)]
	}
	if g.choose.one(4) {
		grant.Labels = [][]Label{{{"gpu", ""}}, {{"zone", "a"}, {"zone", "b"}}, {{"zone", "b"}, {"zone", "a"}}}[g.odd(2, 3)]
	}
	return grant
}

func (g *generator) credential(s *State) Credential {
	c := Credential{Kind: CredentialKind(1 + g.odd(2, 3)), Hash: g.hash()}
	if g.choose.one(2) {
		c.ExpiresMS = max(1, s.now+int64(g.choose(80)))
	}
	return c
}

func (g *generator) identityID(s *State) IdentityID {
	return IdentityID(1 + g.choose(1+int(s.identities.next)))
}

func (g *generator) tokenID(s *State) JoinTokenID {
	return JoinTokenID(1 + g.choose(1+int(s.NextJoinToken())))
}

func (g *generator) createJoinToken(s *State) Op {
	role := []Role{RoleWorker, RoleWorker, RoleReader, RoleReplica}[g.choose(4)]
	o := &CreateJoinToken{
		Purpose: role.JoinPurpose(), Grant: g.grant(role), NamePattern: []string{"", "w*", "c*i", "w1", "w/*"}[g.odd(4, 5)],
		Hash: g.hash(), Uses: uint32(g.choose(3)), CreatedBy: "alice", CreatedMS: g.at(s), Key: g.key(),
	}
	if g.choose.one(2) {
		o.ExpiresMS = max(1, s.now+int64(g.choose(80)))
	}
	if g.choose.one(20) {
		o.Purpose = JoinPurpose(g.choose(5))
	}
	return o
}

// redeem uses a token, mostly one that exists, in the right way.
func (g *generator) redeem(s *State) Op {
	o := &RedeemJoinToken{
		Token: g.tokenID(s), SecretHash: g.hash(), Purpose: JoinWorker, Name: g.name(), Credential: g.credential(s),
		Replace: g.choose.one(2), AtMS: g.at(s), Key: g.key(),
	}
	for x := range s.JoinTokens() {
		if g.choose.one(2) {
			o.Token = x.ID
		}
	}
	if x := s.JoinToken(o.Token); x != nil && !g.choose.one(16) {
		o.SecretHash, o.Purpose = x.Hash, x.Purpose
	}
	if g.choose.one(16) {
		o.Purpose = JoinPurpose(g.choose(5))
	}
	return o
}
