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
	"time"
)

// Limits of one worker.
const (
	maxSlots  = 65535
	maxResult = 4 << 10 // bytes of an attempt's inline result
	maxError  = 1 << 10 // bytes of an error text
	maxName   = 63      // bytes of an error class
)

// Config describes a worker. The zero value of every field but Join is useful.
type Config struct {
	// Join names coordinators, HOST:PORT each; any one that is alive is enough.
	// Host names are resolved anew for each connection.
	Join []string
	// Name is the worker's name, stable across restarts: 1–63 letters, digits,
	// - _ and dots. Default: the host's name.
	Name string
	// Slots is the number of attempts that run at a time, 1–65,535. Default:
	// the number of processors.
	Slots int
	// Prefetch is the number of attempts that wait here for a slot, at most
	// 65,535, so that a slot need not wait for the leader when its attempt has
	// ended. They come only while tasks take less than 100 ms on average. Default:
	// as many as slots; negative: none.
	Prefetch int
	// Labels are matched by the require field of tasks.
	Labels map[string]string
	// Resources that tasks can ask for, in thousandths of a unit (memory and
	// disk: thousandths of a byte). Default: the machine's cpu, memory and disk;
	// entries here replace or add to those.
	Resources map[string]int64
	// WorkDir is the worker's own folder; no two processes can share one.
	// Default: dtask-worker/NAME in $XDG_STATE_HOME or the user's cache folder.
	WorkDir string
	// DrainTimeout is how long running attempts may go on once Run's context is
	// done; then they are ended and handed back. Default 30 s; negative: at once.
	DrainTimeout time.Duration
	// LogBytes bounds the logs of all attempts together; the oldest are removed
	// first. Default 256 MiB.
	LogBytes int64
	// CheckpointInterval is the least time between two checkpoints of an attempt
	// that its command asks for. Default 5 s; negative: none.
	CheckpointInterval time.Duration
	// CheckpointStore is a folder that all workers share, for checkpoints above
	// 64 KiB. It must exist. Empty: those stay on this worker.
	CheckpointStore string
	// Version of the program, for people.
	Version string
	// TLS, if set, secures every connection. Nil: in the clear, for loopback.
	TLS *tls.Config
	// Token, if set, is sent as a bearer token with every session; it needs TLS
	// unless all of Join is loopback.
	Token string
}

// Option changes how a worker is built rather than what it is.
type Option func(*Worker)

// WithLogger sets the logger; without it the worker is silent.
func WithLogger(log *slog.Logger) Option { return func(w *Worker) { w.log = log } }

// WithDialer replaces how connections are opened, for a process that holds
// coordinator and worker at once and for tests. addr is an entry of Join or a
// leader's address.
func WithDialer(dial func(ctx context.Context, addr string) (net.Conn, error)) Option {
	return func(w *Worker) { w.dial = dial }
}

// Defaults fills what is not set.
func (c *Config) Defaults() error {
	if c.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("finding a name for the worker: %w", err)
		}
		c.Name = nameFrom(host)
	}
	if c.Slots == 0 {
		c.Slots = runtime.NumCPU()
	}
	if c.Prefetch == 0 {
		c.Prefetch = c.Slots
	}
	c.Prefetch = max(c.Prefetch, 0)
	if c.WorkDir == "" {
		dir, err := defaultWorkDir(c.Name)
		if err != nil {
			return err
		}
		c.WorkDir = dir
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = 30 * time.Second
	}
	if c.CheckpointInterval == 0 {
		c.CheckpointInterval = 5 * time.Second
	}
	if c.LogBytes == 0 {
		c.LogBytes = 256 << 20
	}
	return nil
}

var validName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,63}$`)

// Validate returns everything that is wrong, joined; each line names the flag.
func (c *Config) Validate() error {
	var faults []error
	if len(c.Join) == 0 {
		faults = append(faults, errors.New("--join: at least one HOST:PORT is needed"))
	}
	for _, addr := range c.Join {
		if _, port, err := net.SplitHostPort(addr); err != nil || port == "" {
			faults = append(faults, fmt.Errorf("--join: %q is not HOST:PORT", addr))
		}
	}
	if !validName.MatchString(c.Name) || c.Name == "." || c.Name == ".." {
		faults = append(faults, fmt.Errorf("--name: %q must be 1–63 letters, digits, - _ and dots", c.Name))
	}
	if c.Slots < 1 || c.Slots > maxSlots {
		faults = append(faults, fmt.Errorf("--slots: %d must be 1–%d", c.Slots, maxSlots))
	}
	if c.Prefetch > maxSlots {
		faults = append(faults, fmt.Errorf("--prefetch: %d must be at most %d", c.Prefetch, maxSlots))
	}
	for name, amount := range c.Resources {
		if name == "" || amount < 0 {
			faults = append(faults, fmt.Errorf("--resource: %q must have a name and no negative amount", name))
		}
	}
	for key := range c.Labels {
		if key == "" {
			faults = append(faults, errors.New("--label: a label needs a name"))
		}
	}
	if c.LogBytes < 0 {
		faults = append(faults, errors.New("the bound of the logs must not be negative"))
	}
	if c.Token != "" && c.TLS == nil && !allLoopback(c.Join) {
		faults = append(faults, errors.New("a token is sent over TLS only, unless all coordinators are on loopback"))
	}
	return errors.Join(faults...)
}

// nameFrom makes a valid name of any host name.
func nameFrom(host string) string {
	name := regexp.MustCompile(`[^A-Za-z0-9._-]`).ReplaceAllString(host, "-")
	if name == "" || name == "." || name == ".." {
		return "worker"
	}
	return name[:min(len(name), maxName)]
}

func defaultWorkDir(name string) (string, error) {
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "dtask-worker", name), nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding a work folder (give one with --work-dir): %w", err)
	}
	return filepath.Join(cache, "dtask-worker", name), nil
}

func allLoopback(addrs []string) bool {
	for _, addr := range addrs {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return false
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return false
		}
	}
	return true
}
