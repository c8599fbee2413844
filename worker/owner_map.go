package worker

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/worker/process"
)

const (
	// minUID is the lowest number of a user that the owner of a job can become: those below
	// are of the system.
	minUID = 1000
	// maxMapBytes bounds the file of Config.RunAsMap.
	maxMapBytes = 1 << 20
	// anyOwner stands for every identity, and for the account with the name of the identity.
	anyOwner = "*"
)

// An ownerLine is a line of the file: an identity, the user of its commands, and the
// namespaces of the jobs that it is for; none means all.
type ownerLine struct {
	owner, user string
	namespaces  []string
}

// An ownerMap is the file that maps the owners of jobs to users of this machine. It is read
// again when it has changed.
type ownerMap struct {
	path string

	mu    sync.Mutex // guards the rest
	state fs.FileInfo
	lines []ownerLine
}

// openOwnerMap reads the file. It returns an error if a user other than root could change
// it.
func openOwnerMap(path string) (*ownerMap, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("reading --run-as-map: %w", err)
	}
	m := &ownerMap{path: path}
	_, err = m.current()
	return m, err
}

// userFor returns the user of the commands of an owner in a namespace. The first line for
// both decides.
func (m *ownerMap) userFor(owner, namespace string) (*process.User, error) {
	lines, err := m.current()
	if err != nil {
		return nil, &notStartedError{err: err}
	}
	if owner == "" {
		return nil, m.refuse("the job has no owner: submit it with a token")
	}
	for _, l := range lines {
		if (l.owner == owner || l.owner == anyOwner) && (len(l.namespaces) == 0 || slices.Contains(l.namespaces, namespace)) {
			return m.lookup(l, owner)
		}
	}
	return nil, m.refuse("owner %q in namespace %s has no line in %s on this worker's machine: add one, or require a worker that has one by its labels", owner, namespace, m.path)
}

// lookup finds the account that a line gives to an owner.
func (m *ownerMap) lookup(l ownerLine, owner string) (user *process.User, err error) {
	if l.user == anyOwner {
		user, err = process.LookupAccount(owner)
	} else {
		user, err = process.LookupUser(l.user)
	}
	if err != nil {
		return nil, &notStartedError{err: fmt.Errorf("finding the user of owner %q by %s: %w", owner, m.path, err)}
	}
	if user.UID < minUID {
		return nil, m.refuse("owner %q would become user %s with number %d by %s: only users from number %d on run commands: name another user there", owner, user.Name, user.UID, m.path, minUID)
	}
	if err := user.Check(); err != nil {
		return nil, &notStartedError{err: fmt.Errorf("user %s of owner %q: %w", user.Name, owner, err)}
	}
	return user, nil
}

// refuse returns the error of an attempt that no other try on this worker would start.
func (*ownerMap) refuse(format string, args ...any) error {
	return &notStartedError{err: fmt.Errorf(format, args...), fatal: true}
}

// current returns the lines of the file as it is now. No command starts while the file is
// missing or could be changed by others.
func (m *ownerMap) current() ([]ownerLine, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	file, err := os.Open(m.path)
	if err != nil {
		return nil, fmt.Errorf("reading --run-as-map: %w", err)
	}
	defer func() { _ = file.Close() }() // read only
	info, err := file.Stat()
	if err == nil {
		err = checkRootOnly(m.path, info)
	}
	if err != nil {
		return nil, fmt.Errorf("reading --run-as-map: %w", err)
	}
	if m.state != nil && sameFile(m.state, info) {
		return m.lines, nil
	}
	text, err := io.ReadAll(io.LimitReader(file, maxMapBytes+1))
	if err == nil && len(text) > maxMapBytes {
		err = fmt.Errorf("more than %d bytes", maxMapBytes)
	}
	var lines []ownerLine
	if err == nil {
		lines, err = parseOwnerMap(string(text))
	}
	if err != nil {
		return nil, fmt.Errorf("reading --run-as-map %s: %w", m.path, err)
	}
	m.state, m.lines = info, lines
	return lines, nil
}

// sameFile reports whether a file has not changed. Its change time can't be set back.
func sameFile(then, now fs.FileInfo) bool {
	a, okA := then.Sys().(*syscall.Stat_t)
	b, okB := now.Sys().(*syscall.Stat_t)
	return okA && okB && os.SameFile(then, now) && a.Ctim == b.Ctim && then.Size() == now.Size()
}

// checkRootOnly returns an error if a user other than root could change a file, or put
// another one in its place.
func checkRootOnly(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	if err := checkRootOwns(path, info); err != nil {
		return err
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err //nolint:wrapcheck // has the path
	}
	for _, p := range []string{path, resolved} {
		for dir := filepath.Dir(p); ; dir = filepath.Dir(dir) {
			info, err := os.Stat(dir)
			if err != nil {
				return err //nolint:wrapcheck // has the path
			}
			if err := checkRootOwns(dir, info); err != nil {
				return err
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return nil
}

// checkRootOwns returns an error if a user other than root could change a file or a
// directory. In a sticky directory, others can't replace the files of root.
func checkRootOwns(path string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	sticky := info.IsDir() && info.Mode()&fs.ModeSticky != 0
	switch {
	case !ok:
		return errors.New("this system has no owners of files")
	case stat.Uid != 0:
		return fmt.Errorf("%s belongs to user %d, who could map owners to any user: run chown root on it", path, stat.Uid)
	case info.Mode().Perm()&0o022 != 0 && !sticky:
		return fmt.Errorf("%s has mode %04o, with which others could map owners to any user: run chmod go-w on it", path, info.Mode().Perm())
	}
	return nil
}

// parseOwnerMap reads lines of IDENTITY USER [NAMESPACE…]. Empty lines and those that begin
// with # have no meaning.
func parseOwnerMap(text string) (lines []ownerLine, err error) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) < 2 {
			return nil, fmt.Errorf("line %d: must be IDENTITY USER [NAMESPACE…]", number)
		}
		for _, namespace := range fields[2:] {
			if err := auth.CheckNamespace(namespace); err != nil {
				return nil, fmt.Errorf("line %d: %w", number, err)
			}
		}
		lines = append(lines, ownerLine{owner: fields[0], user: fields[1], namespaces: fields[2:]})
	}
	return lines, nil
}
