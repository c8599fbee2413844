package coordinator

import (
	"context"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dtask/dtask/coordinator/api"
	"github.com/dtask/dtask/coordinator/audit"
	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	line "github.com/dtask/dtask/internal/audit"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// AuditMode is what happens when the audit log can't be written.
type AuditMode = audit.Mode

// The modes of the audit log.
const (
	AuditOff        = audit.ModeOff
	AuditBestEffort = audit.ModeBestEffort
	AuditRequired   = audit.ModeRequired
)

// Defaults of the retention of the audit log.
const (
	DefaultAuditFileBytes = audit.DefaultFileBytes
	DefaultAuditFiles     = audit.DefaultFiles
)

// minAuditFile bounds Config.AuditFileBytes from below.
const minAuditFile = 64 << 10

// checkAudit checks the settings of the audit log.
func (c *Config) checkAudit() []error {
	var errs []error
	if c.Audit != "" && c.Audit.Validate() != nil {
		errs = append(errs, fmt.Errorf("invalid --audit %q: must be off, best-effort or required", c.Audit))
	}
	if c.AuditFileBytes != 0 && c.AuditFileBytes < minAuditFile {
		errs = append(errs, fmt.Errorf("invalid --audit-file-bytes %d: must be at least %d", c.AuditFileBytes, minAuditFile))
	}
	if c.AuditFiles < 0 || c.AuditFiles == 1 {
		errs = append(errs, fmt.Errorf("invalid --audit-files %d: must be 2 or more", c.AuditFiles))
	}
	return errs
}

// newAudit makes the audit log; nil with AuditOff.
func (r *replica) newAudit() *audit.Log {
	if r.cfg.Audit == AuditOff {
		return nil
	}
	return audit.New(audit.Config{
		Dir: filepath.Join(r.cfg.DataDir, line.Directory), ServerID: r.dir.serverID, Version: r.cfg.Version, Mode: r.cfg.Audit,
		Reads: r.cfg.AuditReads, FileBytes: r.cfg.AuditFileBytes, Files: r.cfg.AuditFiles,
		Wall: r.cfg.Wall, Index: r.machine.Index, Known: r.knownAuditHead, Cluster: r.clusterID, Logger: r.log, TimeScale: r.cfg.TimeScale,
	})
}

// runAudit writes the audit log until the returned function is called: after the last call
// has ended.
func (r *replica) runAudit(ctx context.Context) (end func()) {
	if r.audit == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.audit.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// auditor returns the audit log as package api needs it.
func (r *replica) auditor() api.Auditor { return orNil[api.Auditor](r.audit) }

// checkAuditSpace returns why new jobs are refused for the audit log, if they are.
func (r *replica) checkAuditSpace() error {
	if r.audit == nil {
		return nil
	}
	if err := r.audit.Admit(); err != nil {
		return &sequencer.BusyError{What: err.Error(), Limit: sequencer.LimitDisk, RetryAfter: spaceRetryDelay}
	}
	return nil
}

// denyHTTP counts and records that a caller of the HTTP port was refused.
func (r *replica) denyHTTP(p *auth.Principal, remote, path string, why auth.Denial, reason string) {
	r.api.CountDenial(why)
	if r.audit == nil {
		return
	}
	l := line.Record{Remote: remote, Method: path, Decision: line.Denied, Reason: reason}
	if p != nil {
		l.Who, l.Identity, l.Via = p.Name, p.ID, string(p.Via)
	}
	r.audit.Record(l)
}

// knownAuditHead is the head of this replica's audit log in the state; zero if it has none.
func (r *replica) knownAuditHead() line.Head {
	var known fsm.AuditHead
	r.machine.Read(func(st *fsm.State, _ uint64) { known, _ = st.AuditHead(r.dir.serverID) })
	return line.Head{Seq: known.Seq, Hash: known.Hash}
}

// auditHead is the head of this replica's audit log, as it reports it; nil if it has none.
func (r *replica) auditHead() *dtaskv1.AuditHead {
	if r.audit == nil {
		return nil
	}
	head, ok := r.audit.Head()
	if !ok {
		return nil
	}
	return &dtaskv1.AuditHead{ServerId: r.dir.serverID, Seq: head.Seq, Hash: head.Hash[:]}
}

// setAuditAlarm raises and clears the alarm about the audit log.
func (r *replica) setAuditAlarm() {
	if r.audit != nil {
		problem := r.audit.Problem()
		r.alarms.Set(membership.AlarmAuditLog, problem != "", problem)
	}
}

const (
	// auditHeadInterval is how often the leader records the heads of the audit logs.
	auditHeadInterval = time.Minute
	// firstAuditHeads is when it does so for the first time in its term.
	firstAuditHeads = 2 * time.Second
	// auditHeadTimeout is how long members may take to report theirs.
	auditHeadTimeout = 500 * time.Millisecond
)

// auditHeads is the leader's duty that records the heads of all audit logs in the state,
// so that a log which is cut or changed on one machine is found by the others.
type auditHeads struct{ *replica }

// Name implements leader.Duty.
func (auditHeads) Name() string { return "audit" }

// Run implements leader.Duty.
func (a auditHeads) Run(ctx context.Context, _ uint64) error {
	defer a.alarms.Clear(membership.AlarmPeerAuditLog)
	timer := time.NewTimer(a.cfg.TimeScale.Scale(firstAuditHeads))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			a.record(ctx)
			timer.Reset(a.cfg.TimeScale.Scale(auditHeadInterval))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// record records the heads that members report now. What fails is repeated by the next
// pass, or the next leader.
func (a auditHeads) record(ctx context.Context) {
	term, level := a.leadership.term.Load(), fsm.Level(0)
	a.machine.Read(func(st *fsm.State, _ uint64) { level = st.Level() })
	if term == nil || level < fsm.OpLevel(new(fsm.RecordAuditHead)) {
		return
	}
	var heads []fsm.AuditHead
	add := func(serverID string, h *dtaskv1.AuditHead) {
		if h.GetSeq() > 0 && len(h.GetHash()) == sha256.Size {
			heads = append(heads, fsm.AuditHead{ServerID: serverID, Seq: h.GetSeq(), Hash: [sha256.Size]byte(h.GetHash())})
		}
	}
	add(a.dir.serverID, a.auditHead())
	for _, answer := range a.peers.IdentifyAll(ctx, a.servers(), a.dir.serverID, auditHeadTimeout) {
		add(answer.GetServerId(), answer.GetAuditHead())
	}
	if len(heads) == 0 {
		return
	}
	rejected, err := term.RecordAuditHeads(ctx, heads...)
	if err != nil {
		a.log.DebugContext(ctx, "heads of the audit logs not recorded", "err", err)
		return
	}
	var problems []string
	for _, h := range rejected {
		problems = append(problems, fmt.Sprintf("the audit log of replica %s was cut or changed: it ends with line %d, and the cluster knows another one", h.ServerID, h.Seq))
	}
	a.alarms.Set(membership.AlarmPeerAuditLog, len(problems) > 0, strings.Join(problems, "; "))
}

// auditMetrics are the metrics of a replica with an audit log.
type auditMetrics struct{ log *audit.Log }

// Describe implements prometheus.Collector.
func (m auditMetrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m auditMetrics) Collect(ch chan<- prometheus.Metric) {
	s := m.log.Stats()
	for _, c := range []struct {
		name, help string
		value      uint64
	}{
		{"audit_lines_total", "Lines of the audit log written.", s.Lines},
		{"audit_lines_lost_total", "Lines of the audit log lost, because too many were waiting to be written.", s.Lost},
		{"audit_write_failures_total", "Failed writes of the audit log; they are repeated.", s.Failures},
	} {
		ch <- prometheus.MustNewConstMetric(desc(c.name, c.help), prometheus.CounterValue, float64(c.value))
	}
}
