package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/audit"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newAuditVerify(a *app) *cobra.Command {
	var dir, server string
	var offline bool
	cmd := &cobra.Command{
		Use:   "verify --data-dir DIR",
		Short: "Check that an audit log was neither cut nor changed",
		Long: `Check that each line of an audit log follows the one before it, and that the log has the
line that the cluster knows. The coordinators record the last line of each log every
minute, so a log that was cut, changed or written again is found by what the others know.
The newest lines are checked against each other only. Exit code 1: the log has faults.`,
		Example: `  dtaskctl audit verify --data-dir /var/lib/dtask
  dtaskctl audit verify --data-dir copy-of-n2 --server n2 -o json
  dtaskctl audit verify --data-dir /var/lib/dtask --offline`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := a.auditFiles(dir)
			if err != nil {
				return err
			}
			verify := func(ctx context.Context, c *client.Client, _ []string) (view, error) {
				return a.verifyAudit(ctx, c, files, server)
			}
			if offline {
				v, err := verify(cmd.Context(), nil, nil)
				if err != nil {
					return err
				}
				return a.print(v)
			}
			return a.connected(verify)(cmd, args)
		},
	}
	fl := cmd.Flags()
	bindDataDir(fl, &dir)
	fl.StringVar(&server, "server", "", "server `ID` of the coordinator that wrote the log (default: the one that the log names)")
	fl.BoolVar(&offline, "offline", false, "check the lines against each other only, without the cluster")
	return cmd
}

// verifyAudit verifies a log. Without a client, only its lines are compared.
func (a *app) verifyAudit(ctx context.Context, c *client.Client, files []audit.File, server string) (view, error) {
	report, err := audit.Verify(files, audit.Head{})
	if err != nil {
		return view{}, err
	}
	switch {
	case report.ServerID == "" && server == "" && c != nil:
		return view{}, usagef("no line of the log names the coordinator that wrote it: use --server")
	case report.ServerID != "" && server != "" && report.ServerID != server:
		return view{}, usagef("invalid --server %s: the log is that of %s", server, report.ServerID)
	case report.Lines == 0 && c == nil:
		return view{}, errors.New("there is no audit log in the data directory")
	}
	var head *dtaskv1.AuditHead
	if c != nil {
		if head, err = knownHead(ctx, c, cmp.Or(server, report.ServerID)); err != nil {
			return view{}, err
		}
		if report, err = audit.Verify(files, knownLine(head)); err != nil {
			return view{}, err
		}
	}
	v := view{doc: newAuditReport(report, head), text: func(p *show.Printer) { printAuditReport(p, report, head) }}
	if len(report.Faults) == 0 {
		return v, nil
	}
	if err := a.print(v); err != nil {
		return view{}, err
	}
	return view{}, &commandError{
		err: fmt.Errorf("the audit log has %d faults", len(report.Faults)), code: exitFailed,
		hint: "keep a copy of the data directory; what was done since is also in the audit logs of the other coordinators",
	}
}

// knownHead returns the head of a coordinator's audit log that the cluster knows.
func knownHead(ctx context.Context, c *client.Client, server string) (*dtaskv1.AuditHead, error) {
	heads, err := c.AuditHeads(ctx)
	if err != nil {
		return nil, err
	}
	for _, h := range heads {
		if h.GetServerId() == server {
			return h, nil
		}
	}
	return nil, fmt.Errorf("the cluster knows no line of the audit log of %s: it is recorded every minute, from feature level 2 on; "+
		"--offline checks the lines against each other", server)
}

// knownLine returns the line that the cluster knows; zero if it knows none.
func knownLine(h *dtaskv1.AuditHead) audit.Head {
	known := audit.Head{Seq: h.GetSeq()}
	copy(known.Hash[:], h.GetHash())
	return known
}

func newAuditReport(r *audit.Report, head *dtaskv1.AuditHead) document.AuditReport {
	doc := document.AuditReport{
		ServerID: r.ServerID, Files: r.Files, Lines: r.Lines, First: r.First, Last: r.Last, Incomplete: r.Torn, Faults: []document.AuditFault{},
	}
	if head != nil {
		doc.Known = new(head.GetSeq())
		at := time.UnixMilli(head.GetAt()).UTC().Format(time.RFC3339Nano)
		doc.KnownAt = &at
	}
	for _, f := range r.Faults {
		doc.Faults = append(doc.Faults, document.AuditFault{File: f.File, Line: f.Line, Text: f.Text})
	}
	return doc
}

func printAuditReport(p *show.Printer, r *audit.Report, head *dtaskv1.AuditHead) {
	for _, f := range r.Faults {
		p.Line("%s", show.Clean(f.String()))
	}
	state := "intact"
	if len(r.Faults) > 0 {
		state = "not intact"
	}
	p.Line("%s: %d lines in %d files, number %d to %d", state, r.Lines, r.Files, r.First, r.Last)
	if r.First > 1 {
		p.Line("line %d and those before it were deleted by the retention; its hash was %s", r.First-1, audit.HashText(r.Before))
	}
	if r.Torn {
		p.Line("the last line is incomplete: the coordinator was writing it, or has crashed")
	}
	if head == nil {
		p.Line("not compared with the cluster")
		return
	}
	p.Line("compared with line %d, which the cluster recorded at %s", head.GetSeq(), time.UnixMilli(head.GetAt()).UTC().Format(time.RFC3339))
}
