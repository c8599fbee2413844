package cli

import (
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dtask/dtask/internal/audit"
)

func newAudit(a *app) *cobra.Command {
	return newNoun("audit", "Verify and read the audit log of a coordinator",
		"  dtaskctl audit verify --data-dir /var/lib/dtask\n  dtaskctl audit list --data-dir /var/lib/dtask --denied",
		newAuditVerify(a), newAuditList(a), newAuditTail(a))
}

// bindDataDir adds the flag for the data directory of a coordinator on this machine.
func bindDataDir(fl *pflag.FlagSet, p *string) {
	fl.StringVar(p, "data-dir", "", "data `DIR` of a coordinator on this machine, or a copy of one")
}

// auditFiles lists the files of the audit log in a data directory.
func (a *app) auditFiles(dataDir string) ([]audit.File, error) {
	if dataDir == "" {
		return nil, usagef("--data-dir is required")
	}
	return audit.Files(filepath.Join(a.created(dataDir), audit.Directory))
}
