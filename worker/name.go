package worker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// nameFile holds the name of a worker that chose it itself.
	nameFile = "name"
	// maxHostWorkers bounds the workers without a name of one host.
	maxHostWorkers = 1000
	// contactMargin is how long after a refusal the leader must have heard from
	// the process that has the name before that process counts as alive. What
	// arrives sooner may have been in flight when the process died.
	contactMargin = 200 * time.Millisecond
)

// openDir locks the work directory and chooses the worker's name, unless it is
// given:
//
//   - the name that the directory keeps, so that a restart has the same one;
//   - otherwise the host's name, with a number if the worker chose a directory
//     behind the first one.
//
// If the cluster then refuses the name, see rename.
func (w *Worker) openDir(ctx context.Context) (err error) {
	if w.cfg.Name != "" {
		w.name = w.cfg.Name
		w.dirs, err = awaitDirs(ctx, w.cfg.WorkDir)
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("choosing a worker name (set --name): %w", err)
	}
	w.ownName = nameFrom(host)
	if w.cfg.WorkDir != "" {
		w.dirs, err = awaitDirs(ctx, w.cfg.WorkDir)
	} else {
		w.dirs, w.ownName, err = freeDirs(ctx, w.ownName)
	}
	if err != nil {
		return err
	}
	if w.keptName, err = w.dirs.name(); err != nil {
		return errors.Join(err, w.dirs.close())
	}
	w.name = w.keptName
	if w.name == "" {
		w.name = w.ownName
	}
	return nil
}

// freeDirs locks the first default directory of this host that no process uses:
// that of HOST, HOST-2, HOST-3, …. It returns the name with which the directory
// was made. A directory is made only after all others have stayed in use for
// lockTimeout, so that a worker that replaces a killed one gets its directory.
func freeDirs(ctx context.Context, host string) (*dirs, string, error) {
	for deadline := time.Now().Add(lockTimeout); ; {
		last := !time.Now().Before(deadline)
		d, name, err := firstFree(host, last)
		if last || !isInUse(err) || !waitForLock(ctx) {
			return d, name, err
		}
	}
}

// firstFree is freeDirs without waiting. It makes a directory if no other exists,
// or if extend is true.
func firstFree(host string, extend bool) (*dirs, string, error) {
	var inUse error
	for n := 1; n <= maxHostWorkers; n++ {
		name := numbered(host, n)
		root, err := defaultWorkDir(name)
		if err != nil {
			return nil, "", err
		}
		if _, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) && n > 1 && !extend {
			return nil, "", inUse
		}
		d, err := openDirs(root)
		if !isInUse(err) {
			return d, name, err
		}
		inUse = err
	}
	return nil, "", inUse
}

// numbered returns the name of the nth worker of a host.
func numbered(host string, n int) string {
	if n == 1 {
		return host
	}
	return withSuffix(host, strconv.Itoa(n))
}

// withSuffix returns a valid worker name that ends with a suffix.
func withSuffix(name, suffix string) string {
	return name[:min(len(name), maxWorkerName-1-len(suffix))] + "-" + suffix
}

// rename chooses another name after the cluster has refused the current one, or
// returns the refusal if the name is given or that of a member. It must not be called once the worker
// was welcomed: its attempts belong to its name.
func (w *Worker) rename(refused *NameInUseError) error {
	if w.cfg.Name != "" || w.member != nil {
		return refused
	}
	next := w.ownName
	if w.name == w.ownName || w.renamed {
		suffix := make([]byte, 2)
		_, _ = rand.Read(suffix) // never fails
		next = withSuffix(w.ownName, hex.EncodeToString(suffix))
	}
	w.renamed = true
	w.log.Warn("worker name is in use by another process; using another name",
		"host", refused.Host, "address", refused.Address, "new_name", next)
	w.name = next
	return nil
}

// keepName stores a name that the worker chose in its directory, once the cluster
// has accepted it.
func (w *Worker) keepName() {
	if w.cfg.Name != "" || w.member != nil || w.name == w.keptName {
		return
	}
	if err := w.dirs.keepName(w.name); err != nil {
		w.log.Warn("worker name not stored; the next process in this work directory may get another one", "err", err)
		return
	}
	w.keptName = w.name
}

// name returns the name that the directory keeps; empty if it keeps none.
func (d *dirs) name() (string, error) {
	text, err := os.ReadFile(filepath.Join(d.root, nameFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the worker's name: %w", err)
	}
	name := strings.TrimSpace(string(text))
	if !isName(name) {
		return "", nil // a crash may have left an empty file
	}
	return name, nil
}

// keepName replaces the name that the directory keeps.
func (d *dirs) keepName(name string) error {
	path := filepath.Join(d.root, nameFile)
	err := os.WriteFile(path+".new", []byte(name+"\n"), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("storing the worker's name: %w", err)
	}
	return nil
}

// nameDispute decides whether the process that has this worker's name is alive.
// The leader refuses a name while it may be: it can't tell a process that died
// without closing its connection from one that is silent for a moment. A dead one
// loses the name within the liveness timeout. A living one sends heartbeats.
type nameDispute struct {
	refusedAt time.Time // when the first refusal arrived
}

// refused takes a refusal of a hello that was sent at a time, and reports whether
// the other process is alive: whether the leader has heard from it since the
// first refusal. The time of its last contact is not before sent - silent, because
// the leader measured silent after that.
func (d *nameDispute) refused(holder *dtaskv1.NameHolder, sent, now time.Time) (alive bool) {
	if d.refusedAt.IsZero() {
		d.refusedAt = now
		return false
	}
	silent := time.Duration(holder.GetSilentMs()) * time.Millisecond
	return sent.Sub(d.refusedAt)-silent > contactMargin
}
