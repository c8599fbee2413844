package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/buildinfo"
)

// DefaultAddr is the address of a coordinator that runs with default settings.
const DefaultAddr = "127.0.0.1:7460"

// Limits of gRPC messages. A message of a submission has at most 512 KiB; a
// response may be the result of a wide job (4 KiB per terminal task).
const (
	maxSendBytes    = 4 << 20
	maxReceiveBytes = 64 << 20
)

// Config configures a Client. The zero value connects to a coordinator on this
// machine.
type Config struct {
	// Addrs are the seed addresses, HOST:PORT, of some coordinators, or unix:PATH, the
	// Unix socket of a coordinator on this machine. The client never stops trying them.
	// Default: DefaultAddr.
	Addrs []string
	// Cluster is the ID of the cluster, 32 hexadecimal digits. Coordinators of
	// another one are not used. Default: the cluster of the first coordinator that
	// answers, for the life of the Client. dtaskd recover gives a cluster a new ID.
	Cluster string
	// Timeout is how long a call is retried while no coordinator takes it. It does
	// not limit how long a job may run. Default 60 s.
	Timeout time.Duration
	// TryTimeout is the timeout of one attempt at one coordinator, after which the
	// next one is tried. It doubles each time it expires. Default 2 s.
	TryTimeout time.Duration
	// Credentials secure the connections. Default: none; then, unless Dial is set, the
	// client connects to loopback addresses and Unix sockets only. Unix sockets don't
	// use them.
	Credentials credentials.TransportCredentials
	// Token is sent as a bearer token with every call, but only over TLS, to a loopback
	// address, or to a Unix socket. Optional.
	Token Secret
	// UserAgent precedes the library's name and version in the user agent.
	// Optional.
	UserAgent string
	// Waiting is called once for a call that no coordinator takes for 3 s, with what is waited
	// for. Goroutines whose calls wait call it at the same time. Optional.
	Waiting func(text string)
	// Dial opens connections. It may connect to any address, even without Credentials.
	// Default: TCP without a proxy, and Unix sockets.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// withDefaults returns the configuration with defaults for zero fields.
func (c Config) withDefaults() Config {
	if len(c.Addrs) == 0 {
		c.Addrs = []string{DefaultAddr}
	}
	if c.Timeout == 0 {
		c.Timeout = 60 * time.Second
	}
	if c.TryTimeout == 0 {
		c.TryTimeout = 2 * time.Second
	}
	if c.Dial == nil {
		c.Dial = dial
	}
	if c.Credentials == nil {
		c.Credentials = insecure.NewCredentials()
	}
	return c
}

// plaintext reports whether what the client sends could be read or changed by others.
func (c Config) plaintext() bool { return c.Dial == nil && c.Credentials == nil }

// dial is the default dialer.
func dial(ctx context.Context, addr string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	if path, ok := socketPath(addr); ok {
		return dialer.DialContext(ctx, "unix", path)
	}
	return dialer.DialContext(ctx, "tcp", addr)
}

// validate returns all errors of the configuration, joined.
func (c Config) validate(plaintext bool) error {
	var errs []error
	for _, addr := range c.Addrs {
		errs = append(errs, checkAddress(addr, plaintext))
	}
	if c.Cluster != "" {
		errs = append(errs, checkClusterID(c.Cluster))
	}
	if c.Token != "" {
		if _, err := auth.ParseToken(c.Token.Reveal()); err != nil {
			errs = append(errs, fmt.Errorf("invalid token: %w", err))
		}
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("invalid Timeout %s: must be 0 or more", c.Timeout))
	}
	if c.TryTimeout < 0 {
		errs = append(errs, fmt.Errorf("invalid TryTimeout %s: must be 0 or more", c.TryTimeout))
	}
	return errors.Join(errs...)
}

var errClosed = errors.New("client is closed")

// Client is a client of a dtask cluster. It is safe for concurrent use.
type Client struct {
	cfg       Config
	plaintext bool // only addresses of this machine may be used
	book      *addressBook
	identity  identity
	running   sync.WaitGroup // goroutines of streams
	// handshakes are noted for diagnose.
	handshakes handshakes
	stop       func() // ends what no call waits for

	mu      sync.Mutex                  // guards the rest
	conns   map[string]*grpc.ClientConn // by address, created on first use
	streams map[*grpc.ClientConn]*submitStream
	closed  bool
	foreign []ForeignAddress
}

// New returns a client of the cluster that has coordinators at cfg.Addrs. The
// first call connects. The caller must close the client.
func New(cfg Config) (*Client, error) {
	plaintext := cfg.plaintext()
	cfg = cfg.withDefaults()
	if err := cfg.validate(plaintext); err != nil {
		return nil, &Error{Kind: ErrInvalid, Message: err.Error()}
	}
	c := &Client{
		cfg: cfg, plaintext: plaintext,
		book:  newAddressBook(cfg.Addrs),
		conns: make(map[string]*grpc.ClientConn), streams: make(map[*grpc.ClientConn]*submitStream),
	}
	if cfg.Cluster != "" {
		c.identity.id.Store(&cfg.Cluster)
	}
	c.followCAs()
	return c, nil
}

// Close closes all connections. Calls in progress return an error.
func (c *Client) Close() error {
	c.mu.Lock()
	conns := c.conns
	c.conns, c.closed = nil, true
	c.mu.Unlock()
	c.stop()
	var errs []error
	for _, conn := range conns {
		errs = append(errs, conn.Close())
	}
	c.running.Wait()
	return errors.Join(errs...)
}

// conn returns the connection to addr, which is created on first use.
func (c *Client) conn(addr string) (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	if conn, ok := c.conns[addr]; ok {
		return conn, nil
	}
	if c.plaintext && !isLocal(addr) { // a leader's, which comes from a coordinator
		return nil, &untrustedError{err: errPlaintext}
	}
	token, err := c.cfg.tokenOptions(addr)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(target(addr), slices.Concat(c.dialOptions(), c.transportOptions(addr), token)...)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", addr, err)
	}
	c.conns[addr] = conn
	return conn, nil
}

// dialOptions returns the options that all connections share. Addresses are passed
// through to Dial, which resolves host names at each connect. gRPC's own
// backoff is short because the client has its own between rounds. Keepalive is
// slow on purpose: the guard pings coordinators during calls, and servers may
// close connections that send too many keepalive pings.
func (c *Client) dialOptions() []grpc.DialOption {
	agent := "dtask-client/" + buildinfo.Version()
	if c.cfg.UserAgent != "" {
		agent = c.cfg.UserAgent + " " + agent
	}
	return []grpc.DialOption{
		grpc.WithContextDialer(c.cfg.Dial),
		grpc.WithUserAgent(agent),
		grpc.WithUnaryInterceptor(c.identity.unary),
		grpc.WithStreamInterceptor(c.identity.stream),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallSendMsgSize(maxSendBytes),
			grpc.MaxCallRecvMsgSize(maxReceiveBytes),
		),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.25, Jitter: 0.2, MaxDelay: 250 * time.Millisecond},
			MinConnectTimeout: 2 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 6 * time.Minute, Timeout: 5 * time.Second}),
	}
}
