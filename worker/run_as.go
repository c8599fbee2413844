package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/dtask/dtask/worker/process"
)

// passable is the mode of directories that the user of commands must pass, but not list.
const passable = 0o711

// runAs finds the user of all commands; nil if it is the worker's own, or that of each
// job's owner.
func runAs(text string) (*process.User, error) {
	if text == "" || text == RunAsOwner {
		return nil, nil //nolint:nilnil // as documented
	}
	user, err := process.LookupUser(text)
	if err == nil {
		err = user.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("invalid --run-as %s: %w", text, err)
	}
	return user, nil
}

// checkIsolation returns an error if commands must run under another user and would not. The
// map of owners is read when the worker starts.
func (c *Config) checkIsolation() error {
	if !c.RequireIsolation {
		return nil
	}
	if c.RunAs == "" {
		return errors.New("missing --run-as: --require-isolation lets no command run as the worker's own user: " +
			"add --run-as USER, or --run-as owner with --run-as-map FILE, and start the worker as root")
	}
	if c.RunAs == RunAsOwner {
		if err := stranger.Check(); err != nil {
			return fmt.Errorf("invalid --run-as %s: %w", RunAsOwner, err)
		}
		return nil
	}
	_, err := runAs(c.RunAs)
	return err
}

// userOf returns the user with whose permissions files of an attempt are used. Handlers
// are code of the worker's own program.
func (w *Worker) userOf(a *attempt) *process.User {
	if a.policy.GetType() != "" {
		return nil
	}
	return a.slot.programs.User
}

// commandUser returns the user that must reach the directories of commands; nil: only the
// worker's own. With several, it is one without any rights.
func (w *Worker) commandUser() *process.User {
	if w.owners.users != nil {
		return stranger
	}
	return w.programs.User
}

// admit lets users of commands pass to the directories that are made for them.
func (d *dirs) admit(user *process.User) error {
	if user == nil {
		return nil
	}
	d.others = true
	open := []string{d.root, filepath.Join(d.root, "jobs")}
	for _, pattern := range []string{"checkpoints", "checkpoints/*", "checkpoints/*/*"} {
		found, _ := filepath.Glob(filepath.Join(d.root, pattern)) // the patterns are valid
		open = append(open, found...)
	}
	for _, dir := range open {
		if err := os.Chmod(dir, passable); err != nil {
			return fmt.Errorf("admitting user %s to the work directory: %w", user.Name, err)
		}
	}
	err := user.Do(func() error { return unix.Stat(filepath.Join(d.root, "jobs"), new(unix.Stat_t)) })
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("user %s can't reach the work directory %s: set --work-dir to one below /var/lib, or run chmod a+x on its parents", user.Name, d.root)
	}
	if err != nil {
		return fmt.Errorf("admitting user %s to the work directory: %w", user.Name, err)
	}
	return nil
}

// makeOwned is make for a directory that belongs to the user of a command. One that belongs
// to another user, because --run-as or the map of owners was changed, is replaced by an
// empty one.
func (d *dirs) makeOwned(dir string, user *process.User) error {
	if err := d.make(dir); err != nil || user == nil {
		return err
	}
	var state unix.Stat_t
	err := unix.Lstat(dir, &state)
	if err == nil && state.Uid == user.UID {
		return nil
	}
	if err == nil && !isEmpty(dir) {
		if err = os.RemoveAll(dir); err == nil {
			err = os.Mkdir(dir, 0o700)
		}
	}
	if err == nil {
		err = user.Own(dir)
	}
	if err != nil {
		return fmt.Errorf("creating %s for user %s: %w", dir, user.Name, err)
	}
	return nil
}

// resultPath returns the path for the result of a command with this directory. Another
// user than the worker's gets a directory for it, because it can't create a file beside
// its own.
func (d *dirs) resultPath(dir string, user *process.User) (string, error) {
	path := dir + resultFile
	if user == nil {
		return path, nil
	}
	return filepath.Join(path, "value"), d.makeOwned(path, user)
}

// removeResult removes what resultPath leads to.
func (d *dirs) removeResult(dir string) {
	if !d.others {
		_ = os.Remove(dir + resultFile) // usually missing
		return
	}
	_ = os.RemoveAll(dir + resultFile) // the next start removes it
}
