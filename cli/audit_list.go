package cli

import (
	"math"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/internal/audit"
	"github.com/dtask/dtask/internal/document"
)

// auditFilter selects lines of an audit log.
type auditFilter struct {
	who, object, method string
	denied              bool
	limit               int
}

func (f *auditFilter) selects(r *audit.Record) bool {
	return (f.who == "" || r.Who == f.who) && (f.object == "" || r.Object == f.object) &&
		(f.method == "" || audit.ShortMethod(r.Method) == f.method || r.Method == f.method) && (!f.denied || r.Decision == audit.Denied)
}

func newAuditList(a *app) *cobra.Command {
	var dir string
	var f auditFilter
	cmd := &cobra.Command{
		Use:   "list --data-dir DIR",
		Short: "List the newest lines of an audit log",
		Long: `List the newest lines of the audit log in a data directory, the oldest first. It needs no
cluster. The times are those of the coordinator's clock.`,
		Example: `  dtaskctl audit list --data-dir /var/lib/dtask --denied
  dtaskctl audit list --data-dir /var/lib/dtask --who ci --method Submit --limit 1000 -o json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			files, err := a.auditFiles(dir)
			if err != nil {
				return err
			}
			list, err := f.newest(files)
			if err != nil {
				return err
			}
			return a.print(view{doc: document.AuditLines{Lines: list}, text: func(p *show.Printer) { printAuditLines(p, list) }})
		},
	}
	fl := cmd.Flags()
	bindDataDir(fl, &dir)
	fl.StringVar(&f.who, "who", "", "only calls of the identity with this `NAME`")
	fl.StringVar(&f.method, "method", "", "only calls of the `METHOD`, such as Submit or CreateToken")
	fl.StringVar(&f.object, "object", "", "only calls about the `OBJECT`, such as \"job 42\"")
	fl.BoolVar(&f.denied, "denied", false, "only calls that were refused because of their caller")
	bind(fl, &f.limit, "limit", "100", "at most the last `N` lines", integer[int](1, math.MaxInt32))
	return cmd
}

// newest returns the last lines that the filter selects.
func (f *auditFilter) newest(files []audit.File) ([]audit.Record, error) {
	list := []audit.Record{}
	err := audit.Each(files, func(r *audit.Record) error {
		if f.selects(r) {
			list = append(list, *r)
		}
		if len(list) >= 2*f.limit {
			list = append(list[:0], list[len(list)-f.limit:]...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list[max(0, len(list)-f.limit):], nil
}

func printAuditLines(p *show.Printer, list []audit.Record) {
	t := show.NewTable("SEQ", "AT", "WHO", "METHOD", "NAMESPACE", "OBJECT", "DECISION", "REASON")
	for _, r := range list {
		t.Row(decimal(r.Seq), r.At, auditCaller(&r), audit.ShortMethod(r.Method), r.NS, r.Object, auditDecision(&r), r.Reason)
	}
	p.Table(t)
}

// auditCaller is who made a call, or from where.
func auditCaller(r *audit.Record) string {
	if r.Who != "" {
		return r.Who
	}
	return r.Remote
}

// auditDecision is the decision, and about how many calls.
func auditDecision(r *audit.Record) string {
	if r.Count > 1 {
		return string(r.Decision) + " ×" + decimal(r.Count)
	}
	return string(r.Decision)
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }
