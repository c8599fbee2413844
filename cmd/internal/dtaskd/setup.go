package dtaskd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"
	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/coordinator"
	"github.com/dtask/dtask/internal/config"
	"github.com/dtask/dtask/internal/durable"
	"github.com/dtask/dtask/internal/loopback"
	"github.com/dtask/dtask/internal/program"
)

// The names of what init and join create in the data directory.
const (
	settingsFile = "dtaskd.yaml"
	tlsDir       = "tls"
)

// maxSocketPath is the length that the path of the coordinator's Unix socket can have.
const maxSocketPath = 100

// setupFlags are the flags of init and join: where the replica is, and what it is called.
type setupFlags struct {
	dataDir   string
	advertise string
	listen    string
	http      string
	hosts     []string
	now       bool
	logLevel  string
	logStore  string // empty = the default of dtaskd
	existed   bool   // the data directory, before create
}

func (s *setupFlags) bind(f *pflag.FlagSet) {
	f.StringVar(&s.advertise, "advertise", "", "HOST:PORT by which clients, workers and other coordinators reach this one (required)")
	f.StringVar(&s.dataDir, "data-dir", "", "data directory, which must be empty or missing (default: /var/lib/dtask for root, else dtask in $XDG_STATE_HOME)")
	f.StringVar(&s.listen, "listen", "", "HOST:PORT to listen on (default: the port of --advertise, on all addresses unless --advertise is on loopback)")
	f.StringVar(&s.http, "http", "127.0.0.1:7461", "HOST:PORT for /metrics, /healthz and /readyz (empty = none)")
	f.StringSliceVar(&s.hosts, "san", nil, "further DNS names and IP addresses for the certificate (the host of --advertise is always one)")
	f.StringVar(&s.logStore, "log-store", "", "log store of this coordinator, which keeps it: bolt or wal (default: bolt)")
	f.BoolVar(&s.now, "now", false, "keep running in the foreground")
	f.StringVar(&s.logLevel, "log-level", "warn", "log level: debug, info, warn or error")
}

// check completes the flags, and returns all invalid ones, joined.
func (s *setupFlags) check() error {
	var errs []error
	host, port, err := net.SplitHostPort(s.advertise)
	switch {
	case s.advertise == "":
		errs = append(errs, errors.New("--advertise is required, such as --advertise "+exampleHost()+":7460"))
	case err != nil || host == "" || port == "" || port == "0":
		errs = append(errs, fmt.Errorf("invalid --advertise %q: must be HOST:PORT, as others reach this machine", s.advertise))
	case net.ParseIP(host) != nil && net.ParseIP(host).IsUnspecified():
		errs = append(errs, fmt.Errorf("invalid --advertise %q: others can't connect to %s; name this machine's host or address", s.advertise, host))
	}
	if loopback.Is(s.advertise) {
		s.listen = cmp.Or(s.listen, s.advertise)
	}
	s.listen = cmp.Or(s.listen, ":"+port)
	if _, _, err := net.SplitHostPort(s.listen); err != nil {
		errs = append(errs, fmt.Errorf("invalid --listen %q: must be HOST:PORT", s.listen))
	}
	if _, _, err := net.SplitHostPort(s.http); s.http != "" && err != nil {
		errs = append(errs, fmt.Errorf("invalid --http %q: must be HOST:PORT", s.http))
	}
	if err := coordinator.LogStore(s.logStore).Validate(); err != nil {
		errs = append(errs, fmt.Errorf("invalid --log-store: %w", err))
	}
	_, err = program.NewLogger(io.Discard, s.logLevel, "text")
	errs = append(errs, err)
	if s.dataDir == "" {
		s.dataDir = defaultDataDir()
	}
	s.hosts = append([]string{host}, s.hosts...)
	errs = append(errs, checkEmpty(s.dataDir))
	if err := errors.Join(errs...); err != nil {
		return &program.UsageError{Err: err}
	}
	dir, err := filepath.Abs(s.dataDir)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	s.dataDir = dir
	cfg := coordinator.Config{DataDir: dir}
	if n := len(cfg.Socket()); n > maxSocketPath {
		return &program.UsageError{Err: fmt.Errorf("--data-dir %s is too long: %s has %d characters, and the path of a Unix socket can have %d", dir, cfg.Socket(), n, maxSocketPath)}
	}
	return nil
}

// checkPorts returns an error if the coordinator could not listen. A port that is in use
// must be known before a join string is used, or a directory is filled.
func (s *setupFlags) checkPorts(ctx context.Context) error {
	for _, f := range [][2]string{{"--listen", s.listen}, {"--http", s.http}} {
		if f[1] == "" {
			continue
		}
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", f[1])
		if err != nil {
			return fmt.Errorf("%s: %w", f[0], err)
		}
		if err := l.Close(); err != nil {
			return fmt.Errorf("%s: %w", f[0], err)
		}
	}
	return nil
}

// exampleHost is this machine's name, for messages.
func exampleHost() string {
	name, err := os.Hostname()
	if err != nil {
		return "HOST"
	}
	return name
}

func defaultDataDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/dtask"
	}
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "dtask")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "dtask"
	}
	return filepath.Join(home, ".local", "state", "dtask")
}

// lostAndFound is in the root of every ext file system, so that a data directory which is a
// volume of its own is never quite empty.
const lostAndFound = "lost+found"

// claimFile is in a data directory while init or join fills it: another one at the same time
// must neither use nor remove what the first one creates.
const claimFile = ".setup"

// claim makes sure that only this command fills the data directory.
func (s *setupFlags) claim() error {
	path := filepath.Join(s.dataDir, claimFile)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // in the data directory
	if errors.Is(err, fs.ErrExist) {
		return &program.UsageError{Err: checkEmpty(s.dataDir)}
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		return fmt.Errorf("creating data directory %s: %w", s.dataDir, err)
	}
	entries, err := content(s.dataDir)
	if err == nil && len(entries) == 1 {
		return nil
	}
	// Another one has finished since the flags were checked.
	err = errors.Join(err, os.Remove(path))
	return &program.UsageError{Err: errors.Join(err, checkEmpty(s.dataDir))}
}

// content returns what a directory has in it.
func content(dir string) ([]os.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	return slices.DeleteFunc(entries, func(e os.DirEntry) bool { return e.IsDir() && e.Name() == lostAndFound }), err
}

// checkEmpty returns an error if a directory has anything in it.
func checkEmpty(dir string) error {
	entries, err := content(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && len(entries) == 0:
		return nil
	case slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == claimFile }):
		return fmt.Errorf("--data-dir %s is used by another dtaskd init or join; if that was killed, remove the directory and try again", dir)
	case err != nil:
		return fmt.Errorf("--data-dir: %w", err)
	}
	return fmt.Errorf("--data-dir %s is not empty: it has the data of a coordinator, or other files; "+
		"start that coordinator with dtaskd --config %s, or choose another directory", dir, filepath.Join(dir, settingsFile))
}

// replicaSettings are the settings that init and join store for dtaskd --config.
type replicaSettings struct {
	ID        string   `yaml:"id"`
	DataDir   string   `yaml:"data-dir"`
	Listen    string   `yaml:"listen"`
	Advertise string   `yaml:"advertise"`
	HTTP      string   `yaml:"http"`
	TLSDir    string   `yaml:"tls-dir"`
	LogStore  string   `yaml:"log-store,omitempty"`
	Peers     []string `yaml:"peers,omitempty"`
	Replace   string   `yaml:"replace,omitempty"`
}

// write stores the settings, and returns the path of the file.
func (r replicaSettings) write() (string, error) {
	var text strings.Builder
	text.WriteString("# Settings of this coordinator: dtaskd --config FILE. Any other flag of dtaskd can be added.\n")
	body, err := yaml.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encoding the settings: %w", err)
	}
	text.Write(body)
	path := filepath.Join(r.DataDir, settingsFile)
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		return "", fmt.Errorf("writing the settings: %w", err)
	}
	return path, nil
}

// settings returns the settings of the replica for a set of flags that has their defaults.
func (s *setupFlags) settings(id string, peers []string) replicaSettings {
	return replicaSettings{
		ID: id, DataDir: s.dataDir, Listen: s.listen, Advertise: s.advertise, HTTP: s.http,
		TLSDir: filepath.Join(s.dataDir, tlsDir), LogStore: s.logStore, Peers: peers,
	}
}

// create makes the data directory, and calls fill. If that fails, nothing is left of what
// was created: the command can be repeated.
func (s *setupFlags) create(ctx context.Context, fill func() error) error {
	if err := s.checkPorts(ctx); err != nil {
		return err
	}
	_, err := os.Stat(s.dataDir)
	s.existed = err == nil
	if err := durable.MakeDir(s.dataDir); err != nil {
		return fmt.Errorf("creating data directory %s: %w", s.dataDir, err)
	}
	if err := os.Chmod(s.dataDir, 0o700); err != nil { //nolint:gosec // a directory: its owner must be able to enter it
		return fmt.Errorf("creating data directory %s: %w", s.dataDir, err)
	}
	if err := s.claim(); err != nil {
		return err
	}
	err = fill()
	if err == nil {
		return os.Remove(filepath.Join(s.dataDir, claimFile))
	}
	return errors.Join(err, s.remove())
}

// remove removes what was created in the data directory, which was empty before.
func (s *setupFlags) remove() error {
	if !s.existed {
		return os.RemoveAll(s.dataDir)
	}
	entries, err := content(s.dataDir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(s.dataDir, e.Name())))
	}
	return err
}

// loadSettings returns the configuration that dtaskd --config FILE would run.
func loadSettings(path, logLevel string, stderr io.Writer) (coordinator.Config, error) {
	var s settings
	cmd := new(cobra.Command)
	s.bind(cmd)
	s.args = []string{"--" + config.FileFlag, path}
	flags := cmd.Flags()
	err := errors.Join(flags.Set(config.FileFlag, path), flags.Set("log-level", logLevel), config.Fill(flags, os.LookupEnv))
	if err != nil {
		return coordinator.Config{}, &program.UsageError{Err: err}
	}
	log, errLog := s.logger(stderr)
	peers, errPeers := parsePeers(s.peers)
	if err := errors.Join(errLog, errPeers, s.check()); err != nil {
		return coordinator.Config{}, &program.UsageError{Err: err}
	}
	cfg := s.coordinator(log.With("replica", s.id), peers)
	cfg.Settings = config.Redacted(flags)
	if err := errors.Join(instrument(&cfg), cfg.Validate()); err != nil {
		return coordinator.Config{}, &program.UsageError{Err: err}
	}
	return cfg, nil
}

// runWith runs a coordinator, and calls then with a client of its socket once it listens.
// Afterwards the coordinator continues until ctx is done if now is set, else it stops.
func runWith(ctx context.Context, cfg coordinator.Config, now bool, then func(ctx context.Context, c *client.Client) error) error {
	ctx, stop := program.UntilSignal(ctx, cfg.Logger)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	running, end := context.WithCancel(ctx)
	defer end()
	listening := make(chan struct{})
	cfg.Started = func(string, string) { close(listening) }
	group.Go(func() error {
		defer end()
		return coordinator.Run(running, cfg)
	})
	group.Go(func() error {
		if !now {
			defer end()
		}
		select {
		case <-listening:
		case <-running.Done():
			return nil
		}
		c, err := client.New(client.Config{Addrs: []string{"unix:" + cfg.Socket()}, UserAgent: "dtaskd"})
		if err != nil {
			return fmt.Errorf("connecting to the coordinator: %w", err)
		}
		return errors.Join(then(running, c), c.Close())
	})
	return group.Wait()
}
