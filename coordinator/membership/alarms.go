package membership

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/dtask/dtask/coordinator/raftnode"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Kinds of alarms. They are part of the stable surface.
const (
	// AlarmHistoryConflict: the replica stays out of the cluster, because it would have
	// lost entries that it knew to be committed.
	AlarmHistoryConflict = "history-conflict"
	// AlarmUnverifiedDirectory: the replica started without knowing whether its data
	// directory is current.
	AlarmUnverifiedDirectory = "unverified-directory"
	// AlarmUnreachable: the member does not answer.
	AlarmUnreachable = "unreachable"
	// AlarmDiskNearlyFull: the disk of the data directory is below --min-free-bytes.
	AlarmDiskNearlyFull = "disk-nearly-full"
	// AlarmClockSkew: the leader's wall clock differs from a majority's.
	AlarmClockSkew = "clock-skew"
	// AlarmDivergence: replicas disagree about the state, and no majority agrees.
	AlarmDivergence = "divergence"
	// AlarmCertificate: the replica's certificate expires soon, has expired or is not valid
	// yet, or a changed one is refused.
	AlarmCertificate = "certificate"
	// AlarmPeerCertificate: the certificate of another replica is not valid by this
	// replica's clock.
	AlarmPeerCertificate = "peer-certificate"
	// AlarmIdentities: the cluster has almost as many identities as it can have.
	AlarmIdentities = "identities-nearly-full"
	// AlarmAuditLog: the replica's audit log can't be written, or was cut or changed.
	AlarmAuditLog = "audit-log"
	// AlarmPeerAuditLog: the audit log of another replica was cut or changed. The leader
	// raises it.
	AlarmPeerAuditLog = "peer-audit-log"
	// AlarmBackup: the last run of the schedule of backups failed. The leader raises it.
	AlarmBackup = "backup"
)

// AlarmKinds are all kinds of alarms that a replica raises about itself.
func AlarmKinds() []string {
	return []string{AlarmHistoryConflict, AlarmUnverifiedDirectory, AlarmDiskNearlyFull, AlarmClockSkew, AlarmDivergence, AlarmCertificate, AlarmPeerCertificate, AlarmIdentities, AlarmAuditLog, AlarmPeerAuditLog, AlarmBackup}
}

// Alarms are what an operator must know of this replica. The zero value has none. Its
// methods are safe for concurrent use.
type Alarms struct {
	mu   sync.Mutex // guards list
	list map[string]*dtaskv1.Alarm
}

// Raise raises an alarm, or changes its message. The message says what happened and
// what to do.
func (a *Alarms) Raise(kind, message string) { a.RaiseSince(kind, message, time.Now()) }

// RaiseSince is Raise for a state that began earlier.
func (a *Alarms) RaiseSince(kind, message string, since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	alarm := &dtaskv1.Alarm{Kind: kind, Message: message, Since: timestamppb.New(since)}
	if before := a.list[kind]; before != nil {
		alarm.Since = before.GetSince()
	}
	if a.list == nil {
		a.list = make(map[string]*dtaskv1.Alarm)
	}
	a.list[kind] = alarm
}

// Clear ends an alarm. Without one it changes nothing.
func (a *Alarms) Clear(kind string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.list, kind)
}

// Set raises an alarm or clears it.
func (a *Alarms) Set(kind string, raised bool, message string) {
	if raised {
		a.Raise(kind, message)
	} else {
		a.Clear(kind)
	}
}

// Of returns the alarms, as those of a server, sorted by kind.
func (a *Alarms) Of(serverID string) []*dtaskv1.Alarm {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []*dtaskv1.Alarm
	for _, alarm := range a.list {
		list = append(list, &dtaskv1.Alarm{Member: serverID, Kind: alarm.GetKind(), Message: alarm.GetMessage(), Since: alarm.GetSince()})
	}
	slices.SortFunc(list, func(x, y *dtaskv1.Alarm) int { return cmp.Compare(x.GetKind(), y.GetKind()) })
	return list
}

// alarmsOf returns the alarms of a member with its answer, which is nil if it does not
// answer.
func (s *Service) alarmsOf(m raftnode.Server, a *dtaskv1.IdentifyResponse) []*dtaskv1.Alarm {
	if memberStatus(m, a, 0).GetState() != memberUnreachable {
		return a.GetAlarms()
	}
	alarm := &dtaskv1.Alarm{
		Member: m.ID, Kind: AlarmUnreachable,
		Message: "does not answer at " + m.Address + ": start it, or replace it if its data directory is lost",
	}
	if node := s.cfg.Node(); node != nil {
		if last := node.LastContactOf(m.ID); !last.IsZero() {
			alarm.Since = timestamppb.New(last)
		}
	}
	return []*dtaskv1.Alarm{alarm}
}
