package backup

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"testing"
)

// onDisk does something with a file system of a size that only its thread sees, which ends
// with it.
func onDisk(t *testing.T, path string, bytes int, do func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // until the goroutine ends, and its thread with it
		err := syscall.Unshare(syscall.CLONE_NEWNS)
		if err == nil {
			err = syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
		}
		if err == nil {
			err = syscall.Mount("tmpfs", path, "tmpfs", 0, fmt.Sprintf("size=%d", bytes))
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	switch err := <-done; {
	case errors.Is(err, syscall.EPERM):
		t.Skip("only root may mount a file system")
	case err != nil:
		t.Error(err)
	}
}

// Nothing of a backup that does not fit gets a name.
func TestAFullDiskGetsNoBackup(t *testing.T) {
	t.Parallel()
	const whole = 2 * stateFrame
	for _, size := range []int{stateFrame, whole + stateFrame, 2*whole - stateFrame} {
		path := t.TempDir()
		onDisk(t, path, size, func() error {
			dir, err := OpenDirectory(path, ownPrefix)
			if err != nil {
				return err
			}
			if _, err := addedTo(dir, "c1", 10, nil, 4); !errors.Is(err, syscall.ENOSPC) {
				return fmt.Errorf("%d bytes: got %w", size, err)
			}
			if names, err := namesIn(path); err != nil || len(names) > 0 {
				return fmt.Errorf("%d bytes: left %q, %w", size, names, err)
			}
			return nil
		})
	}
}

func TestADiskThatIsReadOnlyIsAnError(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	onDisk(t, path, 8*stateFrame, func() error {
		dir, err := OpenDirectory(path, ownPrefix)
		if err == nil {
			_, err = addedTo(dir, "c1", 10, nil)
		}
		if err == nil {
			err = syscall.Mount("", path, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
		}
		if err != nil {
			return err
		}
		if _, err := addedTo(dir, "c1", 20, nil, 4); !errors.Is(err, syscall.EROFS) {
			return fmt.Errorf("got %w", err)
		}
		if err := dir.Prune(1); err != nil {
			return err // there is nothing to remove
		}
		if names, err := namesIn(path); err != nil || len(names) != 1 {
			return fmt.Errorf("left %q, %w", names, err)
		}
		return nil
	})
}
