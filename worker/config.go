package worker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/worker/gpu"
)

// Limits of one worker.
const (
	maxSlots = 65535
	// minLogBytes leaves room for a few short outputs.
	minLogBytes = 64 << 10
	maxResult   = 4 << 10 // bytes of an attempt's inline result
	maxError    = 1 << 10 // bytes of an error text
	maxName     = 63      // bytes of an error class

	maxWorkerName = 63 // bytes
	maxShown      = 64 // bytes of an address that is not one; longer ones may have a secret
)

// reservedLabels is the prefix of labels that coordinators set.
const reservedLabels = "dtask."

// automaticLabels are labels that each worker has by itself.
var automaticLabels = []string{"worker", "host", "os", "arch", "isolation"}

// Config configures a worker. Only Join or JoinString is required.
type Config struct {
	// Join lists addresses of coordinators, HOST:PORT each; one that is alive
	// is enough. Host names are resolved again for each connection.
	Join []string
	// JoinString is a join string for workers, as dtaskctl join-token create worker prints
	// it. On its first start, the worker makes a key of its own in WorkDir, which never
	// expires, and joins the cluster under Name. It keeps the cluster's ID, CA and
	// addresses there, and from then on connects to that cluster only, over TLS with its
	// key, with or without a join string. Run returns *JoinError if the string is for
	// another cluster than WorkDir, or if the first join is refused. It can't be combined
	// with TLS.
	JoinString client.Secret
	// Replace takes Name from a worker with another key when it joins: this machine is that
	// worker, and has lost its work directory.
	Replace bool
	// RotateKey makes the worker replace its key when it starts. It does so by itself when
	// the key is a year old, before its next session.
	RotateKey bool
	// Name is the worker's name, stable across restarts: 1–63 letters, digits,
	// - _ and dots. If another live process of the cluster has it, Run returns
	// *NameInUseError. Default: the name that WorkDir keeps, or the host's name;
	// if another process has that, the worker chooses one of its own, such as
	// HOST-2, and keeps it in WorkDir.
	Name string
	// Slots is the number of concurrent attempts, 1–65,535. Default: the number
	// of CPUs.
	Slots int
	// Prefetch is the largest number of attempts that wait at the worker for a
	// slot, at most 65,535, so that a free slot need not wait for the leader.
	// The leader sends them only while tasks take less than 100 ms on average:
	// as many as Slots, and more if those take less than 20 ms together.
	// Default: 32 for each slot, but not more than 1,024 or Slots, whichever is
	// larger; negative: none.
	Prefetch int
	// Labels are matched by the require field of tasks.
	Labels map[string]string
	// Resources that tasks can request, in thousandths of a unit (memory and
	// disk: thousandths of a byte). They replace or extend the machine's cpu,
	// memory and disk.
	Resources map[string]int64
	// GPUs are those of this machine that tasks can request as resource gpu: auto (default),
	// none, or indexes or UUIDs with commas between them, such as 0,1 or amd:0,1. With auto
	// they are found as [gpu.Find] says. Each attempt gets its own, or a part of one; see
	// Task.GPUs and, for commands, DTASK_GPUS. It can't be combined with an amount of gpu in
	// Resources, with which the worker does not choose GPUs. Two workers on a machine must not
	// have the same.
	GPUs string
	// WorkDir is the worker's own directory; two processes cannot share one.
	// Default: dtask-worker/NAME in $XDG_STATE_HOME or the user's cache
	// directory; without a Name, the first of HOST, HOST-2, HOST-3, … there
	// that no process uses.
	WorkDir string
	// DrainTimeout is how long running attempts may continue after Run's
	// context is done; then they are stopped and released. Default 30 s;
	// negative: they are stopped immediately.
	DrainTimeout time.Duration
	// LogBytes, LogAge and LogAttempts bound the logs of all attempts together,
	// also over restarts; the oldest are removed first. Defaults: 1 GiB, 7 days,
	// 1,000,000.
	LogBytes    int64
	LogAge      time.Duration
	LogAttempts int
	// CheckpointInterval is the minimum time between two checkpoints that a
	// command requests. Default 5 s; negative: no minimum.
	CheckpointInterval time.Duration
	// CheckpointStore is a directory that all workers share, for checkpoints
	// above 64 KiB. It must exist. Default: none, large checkpoints stay on
	// this worker.
	CheckpointStore string
	// RunAs is the user of commands, USER or USER:GROUP as names or numbers; Run returns
	// an error unless the worker is root. Commands then have no capability, and none of
	// their files is used with the worker's permissions. Handlers, which are code of the
	// worker's program, run as its user. RunAsOwner is the user of each job's owner, as
	// RunAsMap maps it; it requires a cluster with identities, which the worker joins by a
	// join string, because others don't prove owners. Default: the worker's user.
	RunAs string
	// RunAsMap is a file with lines of IDENTITY USER [NAMESPACE…] for RunAsOwner. The first
	// line for the owner and the namespace of a job decides; without one, attempts fail. *
	// is each identity, or the user with the name of the identity. No user below number
	// 1,000 runs a command. Only root may be able to change the file, which is read again
	// when it has changed.
	RunAsMap string
	// RequireIsolation makes New return an error unless commands run under another user than
	// the worker: RunAs is set, and the worker has the rights for it.
	RequireIsolation bool
	// Reserved makes the worker take only tasks that require one of its labels.
	Reserved bool
	// SecretsDir is a directory with a file for each secret that tasks can name in
	// secrets; the file has the secret's name. Names are read once. Contents are read
	// at the start of each attempt, and never leave this machine. Run returns an error
	// if other users could read a secret. Default: no secrets.
	SecretsDir string
	// Version of the program, for display only.
	Version string
	// TLS secures all connections. Nil: as JoinString says, or plaintext; then, without
	// WithDialer, the worker connects to loopback addresses only.
	TLS *tls.Config
	// Token is sent as a bearer token with every session.
	Token string
}

// Option configures how a worker connects and logs.
type Option func(*Worker)

// WithLogger sets the logger. The default logs nothing.
func WithLogger(log *slog.Logger) Option { return func(w *Worker) { w.log = log } }

// WithDialer replaces how connections are opened, for tests and for a process
// that contains both a coordinator and a worker. addr is an entry of Join or a
// leader's address.
func WithDialer(dial func(ctx context.Context, addr string) (net.Conn, error)) Option {
	return func(w *Worker) { w.dial = dial }
}

// Defaults sets all fields that have the zero value to their defaults, except a
// missing Name, and WorkDir without a Name: Run chooses them.
func (c *Config) Defaults() error {
	if c.Slots == 0 {
		c.Slots = runtime.NumCPU()
	}
	if c.Prefetch == 0 {
		c.Prefetch = min(32*c.Slots, max(c.Slots, 1024))
	}
	c.Prefetch = max(c.Prefetch, 0)
	if c.WorkDir == "" {
		dir, err := defaultWorkDir(c.Name)
		if err != nil {
			return err
		}
		if c.Name != "" {
			c.WorkDir = dir
		}
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = 30 * time.Second
	}
	if c.CheckpointInterval == 0 {
		c.CheckpointInterval = 5 * time.Second
	}
	return nil
}

var validName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,63}$`)

// Validate returns all problems, joined. Each line starts with the flag.
func (c *Config) Validate() error {
	var problems []error
	if c.JoinString == "" && !c.mayBeMember() {
		problems = append(problems, c.checkAddresses())
	}
	problems = append(problems, c.checkJoinString(), c.checkRunAs(), c.checkIsolation())
	for _, addr := range c.Join {
		_, port, err := net.SplitHostPort(addr)
		if number, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || number == 0 {
			if err != nil && len(addr) > maxShown { // maybe a join string without its begin
				addr = "…"
			}
			problems = append(problems, fmt.Errorf("invalid --join %q: must be HOST:PORT", addr))
		}
	}
	if c.Name != "" && !isName(c.Name) {
		problems = append(problems, fmt.Errorf("invalid --name %q: must be 1–63 letters, digits, dots, dashes and underscores", c.Name))
	}
	if c.Slots < 1 || c.Slots > maxSlots {
		problems = append(problems, fmt.Errorf("invalid --slots %d: must be 1–%d", c.Slots, maxSlots))
	}
	if c.Prefetch > maxSlots {
		problems = append(problems, fmt.Errorf("invalid --prefetch %d: must be %d or less", c.Prefetch, maxSlots))
	}
	for name, amount := range c.Resources {
		if name == "" || amount < 0 {
			problems = append(problems, fmt.Errorf("invalid --resource %q: name must not be empty, amount must not be negative", name))
		}
	}
	problems = append(problems, c.checkGPUs())
	for key := range c.Labels {
		if key == "" {
			problems = append(problems, errors.New("invalid --label: name must not be empty"))
		}
		if strings.HasPrefix(key, reservedLabels) {
			problems = append(problems, fmt.Errorf("invalid --label %q: names that start with %q are reserved", key, reservedLabels))
		}
		if slices.Contains(automaticLabels, key) {
			problems = append(problems, fmt.Errorf("invalid --label %q: workers have the labels %s by themselves; choose another name", key, strings.Join(automaticLabels, ", ")))
		}
	}
	if c.LogBytes != 0 && c.LogBytes < minLogBytes {
		problems = append(problems, fmt.Errorf("invalid --log-bytes %d: must be at least %d", c.LogBytes, minLogBytes))
	}
	if c.LogAge < 0 {
		problems = append(problems, fmt.Errorf("invalid --log-age %v: must be above 0", c.LogAge))
	}
	if c.LogAttempts < 0 {
		problems = append(problems, fmt.Errorf("invalid --log-attempts %d: must be above 0", c.LogAttempts))
	}
	return errors.Join(problems...)
}

// checkGPUs checks the form of GPUs, and that they are not counted as well.
func (c *Config) checkGPUs() error {
	if _, counted := c.Resources[gpu.Resource]; counted && c.GPUs != "" && c.GPUs != gpu.Auto {
		return errors.New("--gpus and --resource gpu are mutually exclusive: --gpus names and counts them")
	}
	if err := gpu.Check(c.GPUs); err != nil {
		return fmt.Errorf("invalid --gpus %q: %w", c.GPUs, err)
	}
	return nil
}

// checkJoinString checks the form and the purpose of the join string.
func (c *Config) checkJoinString() error {
	switch {
	case c.JoinString == "":
		return nil
	case c.TLS != nil:
		return errors.New("--join with a join string and --ca-file are mutually exclusive: the string has the CA")
	}
	_, err := client.ParseJoinString(c.JoinString, "worker")
	switch {
	case errors.Is(err, client.ErrRefused):
		return &JoinError{fmt.Errorf("invalid --join: %w", err)}
	case err != nil:
		return fmt.Errorf("invalid --join: %w", err)
	}
	return nil
}

func isName(name string) bool {
	return validName.MatchString(name) && name != "." && name != ".."
}

// nameFrom returns a valid worker name for any host name.
func nameFrom(host string) string {
	name := regexp.MustCompile(`[^A-Za-z0-9._-]`).ReplaceAllString(host, "-")
	if name == "" || name == "." || name == ".." {
		return "worker"
	}
	return name[:min(len(name), maxWorkerName)]
}

func defaultWorkDir(name string) (string, error) {
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "dtask-worker", name), nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("choosing a work directory (set --work-dir): %w", err)
	}
	return filepath.Join(cache, "dtask-worker", name), nil
}
