package fsm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// modelAccess is the reference model of identities, join tokens, trust, audit logs, backups
// and the name of the cluster: lists that are searched from the front, and requests that are remembered as text.
type modelAccess struct {
	identities     []*modelIdentity
	tokens         []*modelToken
	nextIdentity   IdentityID
	nextToken      JoinTokenID
	roots          []string
	rootsMS        int64
	pins           map[string][][32]byte
	heads          map[string]AuditHead
	schedule       *BackupSchedule // nil: none
	saved, failed  *BackupRun      // nil: none
	clusterName    string
	revokedWorkers []WorkerID // in the current entry
	// retire frees the name of a worker, and returns its number; 0 if it is unknown.
	retire func(name string) WorkerID
	// owns reports whether an identity has set a schedule.
	owns func(id IdentityID) bool
}

type modelIdentity struct {
	Identity

	request string
}

type modelToken struct {
	JoinToken

	request string
}

func newModelAccess() modelAccess {
	return modelAccess{nextIdentity: 1, nextToken: 1, pins: map[string][][32]byte{}, heads: map[string]AuditHead{}}
}

// op applies an operation; ok is false for those of other subjects.
func (m *modelAccess) op(op Op) (r string, ok bool) {
	switch op := op.(type) {
	case *CreateIdentity:
		return m.create(op), true
	case *AddCredential:
		return m.addCredential(op), true
	case *RevokeIdentity:
		return m.revoke(op), true
	case *DropCredential:
		return m.drop(op), true
	case *CreateJoinToken:
		return m.createToken(op), true
	case *RedeemJoinToken:
		return m.redeem(op), true
	case *RevokeJoinToken:
		return m.revokeToken(op), true
	case *SetTrust:
		return m.setTrust(op), true
	case *PinReplica:
		if op.ServerID == "" || len(op.KeyHashes) == 0 || len(op.KeyHashes) > 2 || slices.Contains(op.KeyHashes, [32]byte{}) || len(op.KeyHashes) == 2 && op.KeyHashes[0] == op.KeyHashes[1] {
			return "malformed", true
		}
		m.pins[op.ServerID] = op.KeyHashes
		return "accepted", true
	case *ForgetIdentities:
		return m.forget(op), true
	case *RecordAuditHead:
		return m.recordHead(op.AuditHead), true
	case *SetClusterName:
		switch {
		case strings.HasPrefix(op.Name, "-") || strings.Contains(op.Name, "."):
			return "malformed", true
		case op.Name == m.clusterName:
			return "already ended", true
		}
		m.clusterName = op.Name
		return "accepted", true
	case *SetBackupSchedule:
		if op.EveryMS < 1 || op.To == "" || op.AtMS < 1 {
			return "malformed", true
		}
		m.schedule, m.failed = &op.BackupSchedule, nil
		return "accepted", true
	case *DeleteBackupSchedule:
		if m.schedule == nil {
			return "already ended", true
		}
		m.schedule, m.failed = nil, nil
		return "accepted", true
	case *RecordBackup:
		return m.recordBackup(&op.BackupRun), true
	default:
		return "", false
	}
}

func (m *modelAccess) identity(id IdentityID) *modelIdentity {
	for _, i := range m.identities {
		if i.ID == id {
			return i
		}
	}
	return nil
}

func (m *modelAccess) token(id JoinTokenID) *modelToken {
	for _, x := range m.tokens {
		if x.ID == id {
			return x
		}
	}
	return nil
}

// owner returns the identity that is not revoked and has a credential.
func (m *modelAccess) owner(hash [32]byte) *modelIdentity {
	for _, i := range m.identities {
		for _, c := range i.Credentials {
			if i.RevokedMS == 0 && c.Hash == hash {
				return i
			}
		}
	}
	return nil
}

// validAt reports whether one of the credentials is valid.
func validAt(list []Credential, at int64) bool {
	for _, c := range list {
		if c.ExpiresMS == 0 || at < c.ExpiresMS {
			return true
		}
	}
	return false
}

func badModelGrant(g Grant) bool {
	for _, ns := range g.Namespaces {
		if ns != "*" && strings.Trim(ns, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || ns == "" || ns == "*" && len(g.Namespaces) > 1 {
			return true
		}
	}
	for i := range g.Labels {
		if i > 0 && g.Labels[i-1].Key+"\x00"+g.Labels[i-1].Value >= g.Labels[i].Key+"\x00"+g.Labels[i].Value {
			return true
		}
	}
	return g.Role < 1 || g.Role > 7 || !slices.IsSorted(g.Namespaces) || len(slices.Compact(slices.Clone(g.Namespaces))) != len(g.Namespaces)
}

func badModelCredential(c Credential, at int64) bool {
	return at < 1 || c.Kind != 1 && c.Kind != 2 || c.Hash == [32]byte{} || c.ExpiresMS != 0 && c.ExpiresMS <= at
}

func badModelName(name string) bool {
	return name == "" || len(name) > 63 || strings.ContainsAny(name, " /*")
}

func lifetimeText(expires, created int64) string {
	if expires == 0 {
		return "forever"
	}
	return fmt.Sprint(expires - created)
}

// add creates the identity unless there is one from the same request, or it must not.
func (m *modelAccess) add(i modelIdentity, replace bool) string {
	for _, old := range m.identities {
		if i.Key != "" && old.Key == i.Key && old.JoinToken == i.JoinToken {
			if old.request == i.request {
				return "repeated"
			}
			return "idempotency key used for another request"
		}
	}
	return m.addNew(i, replace)
}

func (m *modelAccess) addNew(i modelIdentity, replace bool) string {
	var old *modelIdentity
	for _, x := range m.identities {
		if x.RevokedMS == 0 && x.Name == i.Name && (x.Role == RoleWorker) == (i.Role == RoleWorker) {
			old = x
		}
	}
	if old != nil && validAt(old.Credentials, i.CreatedMS) && !replace {
		return "name taken by another identity"
	}
	if other := m.owner(i.Credentials[0].Hash); other != nil && other != old {
		return "secret or key in use by another identity"
	}
	if old != nil {
		m.end(old, i.CreatedMS, i.CreatedBy)
	}
	i.ID = m.nextIdentity
	m.nextIdentity++
	m.identities = append(m.identities, &i)
	return "accepted"
}

func (m *modelAccess) end(i *modelIdentity, at int64, by string) {
	i.RevokedMS, i.RevokedBy = at, by
	if i.Role == RoleWorker {
		if id := m.retire(i.Name); id != 0 {
			m.revokedWorkers = append(m.revokedWorkers, id)
		}
	}
}

func (m *modelAccess) create(op *CreateIdentity) string {
	if badModelName(op.Name) || badModelGrant(op.Grant) || badModelCredential(op.Credential, op.CreatedMS) {
		return "malformed"
	}
	i := modelIdentity{Identity: Identity{Name: op.Name, Grant: op.Grant, Credentials: []Credential{op.Credential}, CreatedBy: op.CreatedBy, CreatedMS: op.CreatedMS, Key: op.Key}}
	i.Credentials[0].CreatedMS = op.CreatedMS
	i.request = fmt.Sprint(op.Name, op.Grant, op.Credential.Kind, op.Credential.Hash, lifetimeText(op.Credential.ExpiresMS, op.CreatedMS))
	return strings.Replace(m.add(i, false), "repeated", "accepted", 1)
}

func (m *modelAccess) addCredential(op *AddCredential) string {
	i := m.identity(op.ID)
	switch {
	case badModelCredential(op.Credential, op.CreatedMS) || op.OthersExpireMS < 0:
		return "malformed"
	case i == nil:
		return "identity not found"
	case i.RevokedMS != 0:
		return "identity revoked"
	}
	if owner := m.owner(op.Credential.Hash); owner == i {
		return "accepted"
	} else if owner != nil {
		return "secret or key in use by another identity"
	}
	var valid []Credential
	for _, c := range i.Credentials {
		if validAt([]Credential{c}, op.CreatedMS) {
			valid = append(valid, c)
		}
	}
	if len(valid) == 2 {
		return "limit exceeded"
	}
	for n := range valid {
		if c := &valid[n]; op.OthersExpireMS != 0 && (c.ExpiresMS == 0 || op.OthersExpireMS < c.ExpiresMS) {
			c.ExpiresMS = max(op.OthersExpireMS, c.CreatedMS+1)
		}
	}
	c := op.Credential
	c.CreatedMS = op.CreatedMS
	valid = append(valid, c)
	i.Credentials = valid
	return "accepted"
}

func (m *modelAccess) revoke(op *RevokeIdentity) string {
	if len(op.IDs) == 0 || op.AtMS < 1 {
		return "malformed"
	}
	for n, id := range op.IDs {
		if n > 0 && id <= op.IDs[n-1] {
			return "malformed"
		}
		if m.identity(id) == nil {
			return "identity not found"
		}
	}
	for _, id := range op.IDs {
		if i := m.identity(id); i.RevokedMS == 0 {
			m.end(i, op.AtMS, op.By)
		}
	}
	return "accepted"
}

func (m *modelAccess) drop(op *DropCredential) string {
	i := m.identity(op.ID)
	switch {
	case i == nil:
		return "identity not found"
	case i.RevokedMS != 0:
		return "identity revoked"
	case m.owner(op.Hash) != i:
		return "already ended"
	case len(i.Credentials) < 2:
		return "wrong state"
	}
	for _, c := range i.Credentials {
		if c.Hash != op.Hash {
			i.Credentials = []Credential{c}
			break
		}
	}
	return "accepted"
}

func (m *modelAccess) createToken(op *CreateJoinToken) string {
	purpose := map[Role]string{RoleWorker: "worker", RoleReplica: "coordinator"}[op.Role]
	if purpose == "" {
		purpose = "user"
	}
	if badModelGrant(op.Grant) || op.Purpose.String() != purpose || op.Hash == [32]byte{} || op.CreatedMS < 1 ||
		op.ExpiresMS != 0 && op.ExpiresMS <= op.CreatedMS || strings.Contains(op.NamePattern, "/") {
		return "malformed"
	}
	x := modelToken{JoinToken: JoinToken{
		ID: m.nextToken, Purpose: op.Purpose, Grant: op.Grant, NamePattern: op.NamePattern, Hash: op.Hash, Uses: op.Uses,
		ExpiresMS: op.ExpiresMS, CreatedBy: op.CreatedBy, CreatedMS: op.CreatedMS, Key: op.Key,
	}}
	x.request = fmt.Sprint(op.Purpose, op.Grant, op.NamePattern, op.Hash, op.Uses, lifetimeText(op.ExpiresMS, op.CreatedMS))
	for _, old := range m.tokens {
		if op.Key == "" || old.Key != op.Key {
			continue
		}
		if old.request != x.request {
			return "idempotency key used for another request"
		}
		return "accepted"
	}
	m.nextToken++
	m.tokens = append(m.tokens, &x)
	return "accepted"
}

// matchesModel is MatchesName for the patterns that the generator makes.
func matchesModel(pattern, name string) bool {
	if before, after, ok := strings.Cut(pattern, "*"); ok {
		return strings.HasPrefix(name, before) && strings.HasSuffix(name, after) && len(name) >= len(pattern)-1
	}
	return pattern == "" || pattern == name
}

func (m *modelAccess) redeem(op *RedeemJoinToken) string {
	x := m.token(op.Token)
	switch {
	case x == nil || x.Hash != op.SecretHash:
		return "join token not found"
	case badModelName(op.Name) || badModelCredential(op.Credential, op.AtMS):
		return "malformed"
	}
	i := modelIdentity{Identity: Identity{
		Name: op.Name, Grant: x.Grant, Credentials: []Credential{op.Credential}, CreatedBy: x.CreatedBy, CreatedMS: op.AtMS, Key: op.Key, JoinToken: x.ID,
	}}
	i.Credentials[0].CreatedMS = op.AtMS
	i.request = fmt.Sprint(op.Name, op.Credential.Kind, op.Credential.Hash, lifetimeText(op.Credential.ExpiresMS, op.AtMS))
	refusal := ""
	switch {
	case x.RevokedMS != 0:
		refusal = "join token revoked"
	case x.ExpiresMS != 0 && op.AtMS >= x.ExpiresMS:
		refusal = "join token expired"
	case x.Purpose != op.Purpose:
		refusal = "join token has another purpose"
	case !matchesModel(x.NamePattern, op.Name):
		refusal = "name does not match the join token"
	}
	known := false
	for _, old := range m.identities {
		known = known || op.Key != "" && old.Key == op.Key && old.JoinToken == x.ID
	}
	if refusal != "" && !known {
		return refusal
	}
	if old := m.owner(op.Credential.Hash); !known && old != nil && old.Name == op.Name && cmp.Equal(old.Grant, x.Grant, cmpopts.EquateEmpty()) {
		c := slices.IndexFunc(old.Credentials, func(c Credential) bool { return c.Hash == op.Credential.Hash })
		if validAt(old.Credentials[c:c+1], op.AtMS) {
			return "accepted"
		}
	}
	if !known && x.Uses > 0 && x.Used == uint64(x.Uses) {
		return "join token used up"
	}
	switch r := m.add(i, op.Replace && x.Role == RoleWorker); r {
	case "repeated":
		return "accepted"
	case "accepted":
		x.Used++
		x.LastUsedMS = op.AtMS
		return r
	default:
		return r
	}
}

func (m *modelAccess) revokeToken(op *RevokeJoinToken) string {
	x := m.token(op.ID)
	switch {
	case op.AtMS < 1:
		return "malformed"
	case x == nil:
		return "join token not found"
	case x.RevokedMS == 0:
		x.RevokedMS, x.RevokedBy = op.AtMS, op.By
	}
	return "accepted"
}

func (m *modelAccess) setTrust(op *SetTrust) string {
	if len(op.Roots) < 1 || len(op.Roots) > 4 || op.AtMS < 1 {
		return "malformed"
	}
	var roots []string
	for _, r := range op.Roots {
		if len(r) == 0 || len(r) > 4096 || slices.Contains(roots, string(r)) {
			return "malformed"
		}
		roots = append(roots, string(r))
	}
	if !slices.Equal(roots, m.roots) {
		m.roots, m.rootsMS = roots, op.AtMS
	}
	return "accepted"
}

func (m *modelAccess) forget(op *ForgetIdentities) string {
	if op.BeforeMS < 1 || op.Max < 1 || op.Max > 10_000 {
		return "malformed"
	}
	left := op.Max
	forgets := func(ended bool) bool {
		if ended && left > 0 {
			left--
			return true
		}
		return false
	}
	m.identities = slices.DeleteFunc(m.identities, func(i *modelIdentity) bool {
		return forgets(i.RevokedMS != 0 && i.RevokedMS < op.BeforeMS || i.RevokedMS == 0 && !validAt(i.Credentials, op.BeforeMS-1) && !m.owns(i.ID))
	})
	m.tokens = slices.DeleteFunc(m.tokens, func(x *modelToken) bool {
		return forgets(x.RevokedMS != 0 && x.RevokedMS < op.BeforeMS || x.ExpiresMS != 0 && x.ExpiresMS < op.BeforeMS ||
			x.Uses > 0 && x.Used == uint64(x.Uses) && x.LastUsedMS < op.BeforeMS)
	})
	if left == op.Max {
		return "already ended"
	}
	return "accepted"
}

func (m *modelAccess) recordHead(h AuditHead) string {
	last := m.heads[h.ServerID]
	switch {
	case h.ServerID == "" || h.Seq == 0 || h.Hash == [32]byte{} || h.AtMS < 1:
		return "malformed"
	case h.Seq < last.Seq, h.Seq == last.Seq && h.Hash != last.Hash:
		return "out of order"
	case h.Seq > last.Seq:
		m.heads[h.ServerID] = h
	}
	return "accepted"
}

func (m *modelAccess) recordBackup(r *BackupRun) string {
	switch {
	case r.ScheduleMS < 1 || r.AtMS < 1 || r.ServerID == "" || r.To == "":
		return "malformed"
	case m.schedule == nil || m.schedule.AtMS != r.ScheduleMS || m.schedule.To != r.To:
		return "out of order"
	case r.Error == "":
		m.saved, m.failed = r, nil
	default:
		m.failed = r
	}
	return "accepted"
}

// compareBackups returns the schedule and runs of the reference model, and of a state.
func (m *modelAccess) compareBackups(s *State) (want, got []any) {
	schedule, set := s.BackupSchedule()
	saved, known := s.LastBackup()
	failed, is := s.FailedBackup()
	got = []any{schedule, set, saved, known, failed, is}
	return []any{orZero(m.schedule), m.schedule != nil, orZero(m.saved), m.saved != nil, orZero(m.failed), m.failed != nil}, got
}

func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// compare returns the differences between a state and the reference model.
func (m *modelAccess) compare(s *State, fx *Effects) string {
	var want, got []any
	for _, i := range m.identities {
		want = append(want, i.Identity)
	}
	for i := range s.Identities() {
		i := *i
		i.Digest = [16]byte{} // the reference model has the text
		got = append(got, i)
	}
	for _, x := range m.tokens {
		want = append(want, x.JoinToken)
	}
	for x := range s.JoinTokens() {
		x := *x
		x.Digest = [16]byte{}
		got = append(got, x)
	}
	want = append(want, m.nextToken, m.roots, m.rootsMS, m.revokedWorkers)
	var roots []string
	for _, r := range s.Trust() {
		roots = append(roots, string(r))
	}
	got = append(got, s.NextJoinToken(), roots, s.TrustMS(), fx.RevokedWorkers)
	for n := range 3 {
		id := fmt.Sprintf("n%d", n)
		head, _ := s.AuditHead(id)
		want, got = append(want, m.pins[id], m.heads[id]), append(got, s.ReplicaKeys(id), head)
	}
	wantBackups, gotBackups := m.compareBackups(s)
	want, got = append(append(want, wantBackups...), m.clusterName), append(append(got, gotBackups...), s.ClusterName())
	for n := range byte(hashCount) {
		owner := IdentityID(0)
		if i := m.owner(hashed(n)); i != nil {
			owner = i.ID
		}
		found := IdentityID(0)
		if i := s.IdentityByHash(hashed(n)); i != nil {
			found = i.ID
		}
		want, got = append(want, owner), append(got, found)
	}
	if fmt.Sprint(want...) == fmt.Sprint(got...) {
		return "" // cmp.Diff is slow
	}
	return cmp.Diff(want, got, cmpopts.EquateEmpty())
}
