package offline

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/audit"
	"github.com/dtask/dtask/internal/backup"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// revocationReader collects the revocations in audit logs of the cluster that was backed up.
type revocationReader struct {
	manifest backup.Manifest
	heads    map[string]audit.Head // of the audit logs that the backup knows, by server id

	found []fsm.Revocation
	// incomplete are lines that a crash left incomplete, as FILE:LINE.
	incomplete []string
}

// readRevocations reads the revocations in files of audit logs, and in directories with such
// files. Of a directory, the last line of the newest file may be incomplete.
func readRevocations(paths []string, of backup.Manifest, machine *fsm.Machine) (*revocationReader, error) {
	r := &revocationReader{manifest: of, heads: make(map[string]audit.Head)}
	machine.Read(func(s *fsm.State, _ uint64) {
		for _, h := range s.AuditHeads() {
			r.heads[h.ServerID] = audit.Head{Seq: h.Seq, Hash: h.Hash}
		}
	})
	for _, path := range paths {
		files, isDir, err := auditFilesAt(path)
		if err != nil {
			return nil, fmt.Errorf("--revocations: %w", err)
		}
		for i, file := range files {
			if err := r.read(file, isDir && i == len(files)-1); err != nil {
				return nil, fmt.Errorf("--revocations: %w", err)
			}
		}
	}
	return r, nil
}

// auditFilesAt returns a file, or the files of the audit log in a directory, in their order.
func auditFilesAt(path string) (paths []string, isDir bool, err error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, false, err
	}
	files, err := audit.Files(path)
	if err != nil {
		return nil, true, err
	}
	if len(files) == 0 {
		return nil, true, refused("%s has no file of an audit log: name DATA-DIR/audit of a coordinator, or a file in it", path)
	}
	for _, f := range files {
		// A crash between creating a file and its first line leaves it empty.
		if info, err := os.Stat(f.Path); err != nil || info.Size() > 0 {
			paths = append(paths, f.Path)
		}
	}
	return paths, true, nil
}

// read reads a file, whose last line may be incomplete if it is the newest of a log. It is of the cluster if a line names the cluster, or if the chain has the
// line that the backup knows. What a coordinator recorded in another cluster before or after,
// such as one that was recovered from this one, does not count.
func (r *revocationReader) read(path string, newest bool) error {
	proved, other, cluster, actions, lines := false, "", "", 0, 0
	var found []fsm.Revocation
	err := audit.ReadChain(path, func(l audit.Link) error {
		lines = l.Number
		if l.Method == audit.MethodOpen {
			cluster = cmp.Or(l.Cluster, cluster)
		} else {
			actions++
		}
		if cluster != "" && cluster != r.manifest.ClusterID {
			other = cluster
			return nil
		}
		proved = proved || cluster != "" || r.knows(l)
		revocation, is, err := r.revocation(l)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", path, l.Number, err)
		}
		if is {
			found = append(found, revocation)
		}
		return nil
	})
	if newest && errors.Is(err, audit.ErrIncomplete) {
		r.incomplete, err = append(r.incomplete, fmt.Sprintf("%s:%d", path, lines+1)), nil
	}
	switch {
	case errors.Is(err, audit.ErrNotLog):
		return refused("%v", err)
	case err != nil:
		return err
	case !proved && other != "":
		return refused("%s is an audit log of cluster %s, and the backup is of %s: name files of that cluster's coordinators", path, other, r.manifest.ClusterID)
	case !proved && actions == 0:
		return nil // of a coordinator that has recorded nothing since it knows its cluster
	case !proved:
		return refused("nothing in %s shows that it is of cluster %s: it has neither its ID nor a line that the backup knows; "+
			"name the coordinator's file from the time of the backup, with all lines after that", path, r.manifest.ClusterID)
	}
	r.found = append(r.found, found...)
	return nil
}

// knows reports whether the backup knows a line, or the one before it.
func (r *revocationReader) knows(l audit.Link) bool {
	for _, head := range r.heads {
		if head == l.Head || head == l.Before {
			return true
		}
	}
	return false
}

// revocation returns the revocation that a line records.
func (r *revocationReader) revocation(l audit.Link) (made fsm.Revocation, is bool, err error) {
	if l.Decision != audit.Allowed {
		return made, false, nil
	}
	made.By = l.Who
	switch l.Method {
	case dtaskv1.AuthService_RevokeToken_FullMethodName:
		made.Identity, err = numberIn[fsm.IdentityID](l)
	case dtaskv1.AuthService_RevokeJoinToken_FullMethodName:
		made.JoinToken, err = numberIn[fsm.JoinTokenID](l)
	case dtaskv1.AuthService_Join_FullMethodName:
		made.Worker = replacedWorker(l)
		made.Successor = fsm.IdentityID(l.Made)
		is = made.Worker != ""
	default:
		return made, false, nil
	}
	is = is || made.Identity != 0 || made.JoinToken != 0
	if err != nil || !is {
		return made, false, err
	}
	at, err := time.Parse(time.RFC3339Nano, l.At)
	if err != nil {
		return made, false, refused("invalid time %q: the file was changed, name one as a coordinator has written it", l.At)
	}
	made.AtMS = at.UnixMilli()
	return made, true, nil
}

// numberIn is the number that a line is about.
func numberIn[ID ~uint64](l audit.Link) (ID, error) {
	n, err := strconv.ParseUint(l.Object, 10, 64)
	if err != nil || n == 0 {
		return 0, refused("invalid object %q of %s: must be a number; the file was changed, name one as a coordinator has written it",
			l.Object, audit.ShortMethod(l.Method))
	}
	return ID(n), nil
}

// replacedWorker returns the name of the worker whose place another machine took. The log index
// of the line doesn't tell whether the backup has that, too: it is one that the coordinator
// had applied when it recorded the join, some time after it.
func replacedWorker(l audit.Link) string {
	name, _, replaced := strings.Cut(l.Object, audit.Replacing)
	name, worker := strings.CutPrefix(name, "worker ")
	if !replaced || !worker || l.Made == 0 {
		return ""
	}
	return name
}

// revocationText is what a revocation ended.
func revocationText(r fsm.Revocation) string {
	switch {
	case r.Identity != 0:
		return fmt.Sprintf("token %d", r.Identity)
	case r.JoinToken != 0:
		return fmt.Sprintf("join token %d", r.JoinToken)
	}
	return "worker " + r.Worker
}
