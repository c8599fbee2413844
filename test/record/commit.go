package record

import (
	"context"
	"os/exec"
	"strings"
)

// Commit returns the checked-out commit, with "+" at the end if there are uncommitted
// changes, or "unknown". Runs that were added to the record are no such change: a record
// of several runs would otherwise name only the first one's commit.
func Commit(ctx context.Context) string { return commitIn(ctx, ".") }

// recordFile is the record, from the top of the checkout.
const recordFile = "test/record/runs.jsonl"

func commitIn(ctx context.Context, dir string) string {
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = dir
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	commit, err := git("rev-parse", "--short", "HEAD")
	if err != nil {
		return "unknown"
	}
	changed, err := git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)"+recordFile)
	if err != nil {
		return "unknown"
	}
	if changed != "" {
		commit += "+"
	}
	return commit
}
