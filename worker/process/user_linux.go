package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// needed are the capabilities that a worker uses to run programs under another user.
var needed = []struct {
	number uint
	name   string
}{
	{unix.CAP_CHOWN, "CAP_CHOWN"},
	{unix.CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"},
	{unix.CAP_FOWNER, "CAP_FOWNER"}, // removes what a command leaves in a sticky directory
	{unix.CAP_KILL, "CAP_KILL"},
	{unix.CAP_SETGID, "CAP_SETGID"},
	{unix.CAP_SETUID, "CAP_SETUID"},
	{unix.CAP_SETPCAP, "CAP_SETPCAP"},
}

// keepingBits are the secure bits with which a process keeps its capabilities when it
// changes its user: SECBIT_NO_SETUID_FIXUP and SECBIT_KEEP_CAPS.
const keepingBits = 1<<2 | 1<<4

// Check returns why this process can't run programs under the user.
func (u *User) Check() error {
	if strconv.IntSize < 64 { // its system calls have numbers of 16 bits
		return errors.New("another user needs a 64-bit system")
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("only root can run commands under user %s: start the worker as root", u.Name)
	}
	caps, err := capabilities()
	if err != nil {
		return err
	}
	var missing []string
	for _, c := range needed {
		if caps[c.number/32].Effective&(1<<(c.number%32)) == 0 {
			missing = append(missing, c.name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("capabilities are missing: give %s to the worker", strings.Join(missing, ", "))
	}
	if text, _ := os.ReadFile("/proc/self/setgroups"); strings.TrimSpace(string(text)) == "deny" {
		return errors.New("the user namespace of the worker denies setgroups: start it in another one")
	}
	return u.checkMaps()
}

// checkMaps returns an error for numbers that do not exist in this user namespace.
func (u *User) checkMaps() error {
	if !isMapped("/proc/self/uid_map", u.UID) {
		return fmt.Errorf("user %d does not exist in the user namespace of the worker: map it, or name another one", u.UID)
	}
	for _, id := range append([]uint32{u.GID}, u.Groups...) {
		if !isMapped("/proc/self/gid_map", id) {
			return fmt.Errorf("group %d does not exist in the user namespace of the worker: map it, or name another one", id)
		}
	}
	return nil
}

// isMapped reports whether a map of a user namespace has a number; true if unknown.
func isMapped(path string, id uint32) bool {
	text, err := os.ReadFile(path) //nolint:gosec // below /proc
	if err != nil {
		return true
	}
	for line := range bytes.Lines(text) {
		var first, outside, count uint64
		if n, _ := fmt.Sscan(string(line), &first, &outside, &count); n == 3 && uint64(id) >= first && uint64(id) < first+count {
			return true
		}
	}
	return false
}

// capabilities returns the capability sets of this thread.
func capabilities() ([2]unix.CapUserData, error) {
	var data [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&header, &data[0]); err != nil {
		return data, fmt.Errorf("reading capabilities: %w", err)
	}
	return data, nil
}

// setCapabilities sets the capability sets of this thread.
func setCapabilities(data [2]unix.CapUserData) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	return os.NewSyscallError("capset", unix.Capset(&header, &data[0]))
}

// Own makes the user the owner of a file, or of a symbolic link itself.
func (u *User) Own(path string) error {
	if u == nil {
		return nil
	}
	return os.Lchown(path, int(u.UID), int(u.GID)) //nolint:wrapcheck // has the path
}

// Do calls f with the user's permissions on files: those that f opens, creates or changes
// by their path. f must not start goroutines that do. A worker that is root uses it for
// the paths that a task names, so that a task gets no file that its user could not use.
// Of root's capabilities, only CAP_KILL remains, for the processes of the user.
func (u *User) Do(f func() error) error {
	if u == nil {
		return f()
	}
	done := make(chan error, 1)
	go func() { // ends with f, which the caller waits for
		// These identities belong to the thread. The runtime starts no other thread from
		// a locked one.
		runtime.LockOSThread()
		own, err := currentIdentity()
		if err != nil {
			done <- err
			return
		}
		if err = u.assume(own.caps); err == nil {
			err = f()
		}
		done <- err
		if own.resume() == nil {
			runtime.UnlockOSThread()
		} // else the thread ends with this goroutine
	}()
	return <-done
}

// An identity is what Do changes of its thread, besides user and group.
type identity struct {
	groups []uint32
	caps   [2]unix.CapUserData
}

// currentIdentity returns that of this thread.
func currentIdentity() (identity, error) {
	groups, err := unix.Getgroups()
	if err != nil {
		return identity{}, os.NewSyscallError("getgroups", err)
	}
	own := identity{groups: make([]uint32, len(groups))}
	for i, id := range groups {
		own.groups[i] = uint32(id) //nolint:gosec // a group
	}
	own.caps, err = capabilities()
	return own, err
}

// assume gives the thread the identity of the user for the permissions on files. The
// change of the user clears only the capabilities that override permissions on files.
// Others open files too, such as CAP_SYSLOG the messages of the kernel.
func (u *User) assume(caps [2]unix.CapUserData) error {
	if err := setThreadGroups(u.Groups); err != nil {
		return err
	}
	if err := setFileIDs(int(u.UID), int(u.GID)); err != nil {
		return err
	}
	caps[0].Effective &= 1 << unix.CAP_KILL
	caps[1].Effective = 0
	return setCapabilities(caps)
}

// resume gives the thread the identity of the worker again. The user comes first: its
// change raises capabilities that the worker may not have had in effect.
func (i *identity) resume() error {
	return errors.Join(setFileIDs(os.Geteuid(), os.Getegid()), setCapabilities(i.caps), setThreadGroups(i.groups))
}

// setFileIDs sets user and group of the thread for the permissions on files. The system
// calls return the former values, even if they fail: a second one reads the present ones.
func setFileIDs(uid, gid int) error {
	_, _ = unix.SetfsgidRetGid(gid)
	_, _ = unix.SetfsuidRetUid(uid)
	nowGID, _ := unix.SetfsgidRetGid(-1)
	nowUID, _ := unix.SetfsuidRetUid(-1)
	if nowGID != gid || nowUID != uid {
		return fmt.Errorf("changing to user %d and group %d: the kernel refused", uid, gid)
	}
	return nil
}

// setThreadGroups sets the supplementary groups of this thread; syscall.Setgroups sets
// those of all threads.
func setThreadGroups(groups []uint32) error {
	var first unsafe.Pointer
	if len(groups) > 0 {
		first = unsafe.Pointer(&groups[0]) //nolint:gosec // an argument of a system call
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0); errno != 0 {
		return os.NewSyscallError("setgroups", errno)
	}
	return nil
}

// credential returns the identity for a new process.
func (u *User) credential() *syscall.Credential {
	return &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
}

// disinherit prepares this thread for programs of other users: they get no capability by
// any way, and no key of the worker. It keeps what the supervisor itself needs.
func disinherit() error {
	if bits, err := unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0); err != nil || bits&keepingBits != 0 {
		return fmt.Errorf("secure bits %#x keep capabilities for other users: start the worker without them", bits)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clearing ambient capabilities: %w", err)
	}
	caps, err := capabilities()
	if err != nil {
		return err
	}
	caps[0].Inheritable, caps[1].Inheritable = 0, 0
	if err := setCapabilities(caps); err != nil {
		return fmt.Errorf("clearing inheritable capabilities: %w", err)
	}
	for number := uintptr(0); ; number++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, number, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) && number > unix.CAP_SETPCAP {
			break // the kernel has no more
		}
		if err != nil {
			return fmt.Errorf("dropping capability %d: %w", number, err)
		}
	}
	return leaveSessionKeyring()
}

// leaveSessionKeyring gives this thread a new session keyring, and programs that it starts.
// A container that denies it to the supervisor denies all keys to the program, too.
func leaveSessionKeyring() error {
	// No name: unix.KeyctlJoinSessionKeyring passes an empty one, which is invalid.
	_, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0)
	if err == nil || errors.Is(err, unix.ENOSYS) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return fmt.Errorf("leaving the session keyring: %w", err)
}
