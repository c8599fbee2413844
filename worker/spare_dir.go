package worker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dtask/dtask/worker/process"
)

// spareLimit is how long a command may have taken whose empty directories are
// used again. Making new ones costs nothing compared with a longer one, which
// may also have given its directory to a process outside of its tree, such as a
// container.
const spareLimit = 20 * time.Millisecond

// spareSuffix is the suffix of a spare checkpoint directory. A task has at most
// one on a worker, because only its first attempt leaves one.
const spareSuffix = ".spare"

// spareDirs are the two directories that the last command of a slot left empty
// and unchanged. The next command gets them under new names if it belongs to
// the same job and user: many file systems need more time to make and remove a directory
// than a short command takes. Only the slot's goroutine uses them.
type spareDirs struct {
	job              uint64
	user             *process.User // their owner; nil: the worker's
	work, checkpoint spareDir
}

// claim drops the directories unless they are of an attempt's job and user.
func (s *spareDirs) claim(d *dirs, a *attempt) {
	if user := a.slot.programs.User; s.job != a.job || s.user != user {
		s.drop(d)
		s.job, s.user = a.job, user
	}
}

// drop removes the directories.
func (s *spareDirs) drop(d *dirs) {
	s.work.drop(d)
	s.checkpoint.drop(d)
}

// A spareDir is an empty directory, or the zero value.
type spareDir struct {
	path  string
	state unix.Stat_t // when it was made or renamed
}

// make makes an empty directory with this path: from s, or a new one. A
// directory that exists already stays as it is.
func (s *spareDir) make(d *dirs, path string, user *process.User) error {
	if s.path == "" || s.path != path && unix.Rename(s.path, path) != nil {
		s.drop(d) // the path may have a directory that is not empty, or no parent
		if err := d.makeOwned(path, user); err != nil {
			return err
		}
	}
	s.path = path
	if err := unix.Lstat(path, &s.state); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

// keep keeps the directory with this path if that is wanted and it can be used
// again, and reports whether. Otherwise it forgets the directory, which belongs
// to the task then.
func (s *spareDir) keep(wanted bool, path string) bool {
	if wanted && s.path != "" && s.unchanged() && (s.path == path || unix.Rename(s.path, path) == nil) {
		s.path = path
		return true
	}
	*s = spareDir{}
	return false
}

// unchanged reports whether the directory is empty, and nothing about it has
// changed since it was made: each change of its attributes or entries sets the
// time of its last change. The entries are read because that time may be as
// coarse as a few milliseconds.
func (s *spareDir) unchanged() bool {
	var now unix.Stat_t
	if unix.Lstat(s.path, &now) != nil {
		return false
	}
	then := &s.state
	same := now.Ino == then.Ino && now.Dev == then.Dev && now.Mode == then.Mode && now.Uid == then.Uid && now.Gid == then.Gid &&
		now.Nlink == then.Nlink && now.Size == then.Size && now.Mtim == then.Mtim && now.Ctim == then.Ctim
	return same && isEmpty(s.path)
}

func isEmpty(path string) bool {
	dir, err := os.Open(path) //nolint:gosec // in the worker's own directory
	if err != nil {
		return false
	}
	defer func() { _ = dir.Close() }() // read only
	_, err = dir.Readdirnames(1)
	return errors.Is(err, io.EOF)
}

// drop removes the directory if it is empty.
func (s *spareDir) drop(d *dirs) {
	if s.path != "" {
		d.removeEmpty(s.path)
	}
	*s = spareDir{}
}
