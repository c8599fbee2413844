package offline

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/dtask/dtask/coordinator/membership/datadir"
)

// printer writes lines. The first error of its writer ends the output; there is no
// other way to report it.
type printer struct{ w io.Writer }

func (p printer) line(format string, args ...any) { _, _ = fmt.Fprintf(p.w, format+"\n", args...) }

// row writes a labelled line.
func (p printer) row(label, format string, args ...any) {
	p.line("%-14s "+format, append([]any{label}, args...)...)
}

// members writes a line for each member of a cluster.
func (p printer) members(list []Member) {
	for _, m := range list {
		vote := "voter"
		if !m.Voter {
			vote = "non-voter"
		}
		p.row("member", "%s at %s, %s", m.ID, m.Address, vote)
	}
}

// jobsByState says how many jobs are in each state.
func jobsByState(jobs map[string]int) string {
	var list []string
	for _, state := range slices.Sorted(maps.Keys(jobs)) {
		list = append(list, fmt.Sprintf("%d %s", jobs[state], state))
	}
	return orNothing(strings.Join(list, ", "))
}

// Write writes the report as text.
func (r *Report) Write(w io.Writer) {
	p := printer{w}
	p.row("directory", "%s, format %d", r.DataDir, r.Format)
	p.row("server", "%s (--id %s), instance %s", r.ServerID, r.ConfiguredID, r.Instance)
	p.row("cluster", "%s, epoch %d", orUnknown(r.ClusterID), r.Epoch)
	p.row("log store", "%s", orUnknown(r.LogStore))
	vote := "no vote"
	if r.Vote != nil {
		vote = fmt.Sprintf("voted for %s in term %d", r.Vote.Candidate, r.Vote.Term)
	}
	p.row("term", "%d, %s", r.Term, vote)
	p.row("log", "entries %d (term %d) to %d (term %d)", r.Log.FirstIndex, r.Log.FirstTerm, r.Log.LastIndex, r.Log.LastTerm)
	if r.Log.Unfinished {
		p.row("", "the last write was not finished; the next start removes it")
	}
	for _, s := range r.Snapshots {
		p.row("snapshot", "entry %d of term %d: %s", s.Index, s.Term, s.ID)
	}
	p.row("last entry", "%d of term %d", r.LastIndex, r.LastTerm)
	if r.Committed > 0 {
		p.row("committed", "up to %d", r.Committed)
	}
	p.members(r.Members)
	p.row("jobs", "%s (in the state; older ones are in the history)", jobsByState(r.Jobs))
	p.conflict(r.Conflict)
	for _, dir := range r.Quarantined {
		p.row("quarantined", "%s", dir)
	}
	for _, d := range r.Damage {
		p.row("DAMAGE", "%s", d)
	}
}

func (p printer) conflict(c *datadir.Conflict) {
	if c == nil {
		return
	}
	p.row("CONFLICT", "since %s: entries %d to %d are committed, and %s, the leader of term %d, would have replaced them",
		c.Found.UTC().Format("2006-01-02 15:04:05 UTC"), c.Truncated, c.Committed, orUnknown(c.Leader), c.LeaderTerm)
	p.row("", "this replica stays out until dtaskd rejoin or dtaskd recover")
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

func orNothing(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// Write writes the report as text.
func (r *MissingReport) Write(w io.Writer) {
	p := printer{w}
	p.line("%d of %d jobs up to entry %d of %s are only here", len(r.Missing), r.Compared, r.LastIndex, r.DataDir)
	unconfirmed := 0
	for _, j := range r.Missing {
		mark := ""
		if j.Unconfirmed {
			mark = ", unconfirmed"
			unconfirmed++
		}
		p.line("job %s (%s) of %s, %d tasks, submitted %s, %s here%s", j.ID, j.Name, orUnknown(j.Owner), j.TasksTotal, j.SubmittedAt, j.State, mark)
		if j.Reused {
			p.line("  the cluster has another job %s", j.ID)
		}
		switch {
		case j.Problem != "":
			p.line("  not exported: %s", j.Problem)
		case j.File != "":
			p.line("  dtaskctl submit %s --idempotency-key %s", quoted(j.File), quoted(j.Key))
		}
		if j.Updated {
			p.line("  it was updated after its submission; the file has it as it was submitted")
		}
	}
	if unconfirmed > 0 {
		p.line("%d unconfirmed: of the last entries, from %d on, which this replica had stored without learning whether they were committed. "+
			"They may have been acknowledged. Submitting them again with their keys is safe: as long as the cluster remembers a key, it stores its job once.",
			unconfirmed, r.UpTo+1)
	}
	if r.Unread != "" {
		p.line("%s", r.Unread)
	}
}

// quoted quotes a word for a shell.
func quoted(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:=@%+,") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Write writes the plan, or what was done, as text.
func (p *Plan) Write(w io.Writer) {
	out := printer{w}
	out.row("cluster", "%s becomes %s, epoch %d", p.OldCluster, p.NewCluster, p.Epoch)
	out.row("only member", "%s at %s", p.Server.ID, p.Server.Address)
	out.row("kept", "the state up to entry %d of term %d, with %d jobs, and the history", p.LastIndex, p.LastTerm, p.Jobs)
	for _, m := range p.Lost {
		out.row("abandoned", "%s at %s, with everything that it stored after entry %d", m.ID, m.Address, p.LastIndex)
	}
	if c := p.Conflict; c != nil {
		out.row("abandoned", "everything that the cluster led by %s stored from entry %d on", orUnknown(c.Leader), c.Truncated)
	}
	for _, t := range p.LostTasks {
		out.row("lost task", "%s: at most once, and it may have started", t)
	}
	for _, dir := range p.Leftover {
		out.row("left over", "%s, of an interrupted recovery: see dtaskd inspect", dir)
	}
	if p.KeptAs == "" {
		return
	}
	out.line("recovered; the old directory is %s", p.KeptAs)
	out.line("start %s with its usual command line, restart the workers, then let the others in one by one:", p.Server.ID)
	out.line("dtaskd rejoin --data-dir … --yes on each, start it, and dtaskctl cluster add ID HOST:PORT --wait")
}

// Write writes what is moved aside, or was, as text.
func (d *Discarded) Write(w io.Writer) {
	p := printer{w}
	p.row("directory", "%s", d.DataDir)
	p.row("server", "%s of cluster %s", d.ServerID, orUnknown(d.ClusterID))
	p.conflict(d.Conflict)
	if d.KeptAs == "" {
		p.line("its content would be moved aside; jobs that only it has: dtaskd inspect --only-here")
		return
	}
	p.line("its content is in %s", d.KeptAs)
	p.line("start the replica with its usual command line: it rejoins under a new server id")
}

// Write writes the report as text.
func (r *BackupReport) Write(w io.Writer) {
	p := printer{w}
	encrypted := ""
	if r.Encrypted {
		encrypted = ", encrypted"
	}
	p.row("backup", "%s, %d bytes%s", r.File, r.Bytes, encrypted)
	p.row("sha256", "%s", r.SHA256)
	p.row("cluster", "%s, epoch %d, feature level %d", r.ClusterID, r.Epoch, r.Level)
	p.row("written", "%s by %s, version %s", r.CreatedAt, r.ServerID, orUnknown(r.Version))
	p.row("last entry", "%d, of a leader of term %d", r.Index, r.Term)
	p.members(r.Members)
	p.row("jobs", "%s", jobsByState(r.Jobs))
	p.row("workers", "%d", r.Workers)
	p.row("identities", "%d, and %d join tokens", r.Identities, r.JoinTokens)
	if r.History {
		p.row("history", "%d jobs", r.HistoryJobs)
		for _, file := range r.HistoryFiles {
			p.row("", "in %s", file)
		}
	} else {
		p.row("history", "not included")
	}
}

// Write writes what was restored as text.
func (r *Restored) Write(w io.Writer) {
	p := printer{w}
	p.row("cluster", "%s of %s is now %s, epoch %d", r.OldCluster, r.CreatedAt, r.NewCluster, r.Epoch)
	p.row("only member", "%s at %s", r.Server.ID, r.Server.Address)
	p.row("jobs", "%d, and %d in the history", r.Jobs, r.History)
	p.row("requeued", "%d tasks that were running", r.Requeued)
	for _, t := range r.LostTasks {
		p.row("lost task", "%s: at most once, and it may have started", t)
	}
	p.row("dropped", "%d identities, %d join tokens, %d workers", r.DroppedIdentities, r.DroppedJoinTokens, r.DroppedWorkers)
	p.row("kept", "%d identities, %d workers", r.Identities, r.Workers)
	if r.Revoked+r.RevokedBefore+len(r.UnknownRevocations) > 0 {
		p.row("revocations", "%d applied, %d that the backup has, too", r.Revoked, r.RevokedBefore)
	}
	for _, unknown := range r.UnknownRevocations {
		p.row("unknown", "%s: revoked, and not in the backup", unknown)
	}
	for _, line := range r.IncompleteLines {
		p.row("incomplete", "%s: a crash cut this last line of an audit log; a revocation in it is not repeated", line)
	}
	p.line("restored into %s; start %s on it with its usual command line, then let the others in", r.DataDir, r.Server.ID)
}
