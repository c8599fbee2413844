package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lockTimeout is how long a worker waits for a directory that another process
	// uses: the kernel may take some time to end a killed process.
	lockTimeout = 500 * time.Millisecond
	// lockInterval is the time between two tries.
	lockInterval = 20 * time.Millisecond
)

// awaitDirs is openDirs for a directory whose previous process may be about to
// end.
func awaitDirs(ctx context.Context, root string) (*dirs, error) {
	for deadline := time.Now().Add(lockTimeout); ; {
		d, err := openDirs(root)
		if !isInUse(err) || !time.Now().Before(deadline) || !waitForLock(ctx) {
			return d, err
		}
	}
}

// waitForLock waits for the next try, and returns false if ctx is done first.
func waitForLock(ctx context.Context) bool {
	select {
	case <-time.After(lockInterval):
		return true
	case <-ctx.Done():
		return false
	}
}

func isInUse(err error) bool {
	_, ok := errors.AsType[*WorkDirInUseError](err)
	return ok
}

// lock locks a file against other processes, without waiting.
func lock(file *os.File, root string) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return &WorkDirInUseError{Dir: root}
	}
	if err != nil {
		return fmt.Errorf("locking work directory: %w", err)
	}
	return nil
}

// lockID identifies a locked file among all files of all machines: a file is
// known by its device and number to one running kernel, and a kernel by the ID of
// its boot. Containers share the kernel, and a cloned machine boots with another
// ID. So a process that holds the lock knows that all others with this ID are
// dead. It is empty if the system doesn't tell.
func lockID(file *os.File) string {
	var st unix.Stat_t
	boot := bootID()
	if boot == "" || unix.Fstat(int(file.Fd()), &st) != nil {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", boot, st.Dev, st.Ino))
	return hex.EncodeToString(sum[:16])
}

// bootID returns a random number that the kernel chose when it started; "" if the
// system has none.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
