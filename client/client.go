package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// DefaultAddr is where a coordinator listens if nobody said otherwise.
const DefaultAddr = "127.0.0.1:7460"

// Limits of gRPC messages. A submission is cut into messages of 512 KiB; an
// answer may be a whole result of a wide job (4 KiB per terminal task).
const (
	maxSendBytes    = 4 << 20
	maxReceiveBytes = 64 << 20
)

// Config says how to reach a cluster. The zero value reaches a coordinator on
// this machine.
type Config struct {
	// Addrs are the seed addresses, HOST:PORT, of some coordinators. They are
	// tried for ever. Default: DefaultAddr.
	Addrs []string
	// Timeout is how long a call goes on while no coordinator takes it. It does
	// not limit how long work may take. Default 60 s.
	Timeout time.Duration
	// TryTimeout is how long one call at one coordinator may take before
	// another is asked; it doubles each time that it was too short. Default 2 s.
	TryTimeout time.Duration
	// Credentials secure the connections. Default: none, for loopback.
	Credentials credentials.TransportCredentials
	// UserAgent is put before the library's own name and version. Optional.
	UserAgent string
	// Dial makes the connections. Default: TCP without a proxy.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// withDefaults fills in what was left out.
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
	if c.Credentials == nil {
		c.Credentials = insecure.NewCredentials()
	}
	if c.Dial == nil {
		dialer := &net.Dialer{Timeout: 5 * time.Second}
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", addr)
		}
	}
	return c
}

// validate returns all that is wrong with the configuration, joined.
func (c Config) validate() error {
	var errs []error
	for _, addr := range c.Addrs {
		host, port, err := net.SplitHostPort(addr)
		if err != nil || host == "" || port == "" {
			errs = append(errs, fmt.Errorf("address %q is not HOST:PORT", addr))
		}
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("time-out %s is negative", c.Timeout))
	}
	if c.TryTimeout < 0 {
		errs = append(errs, fmt.Errorf("try time-out %s is negative", c.TryTimeout))
	}
	return errors.Join(errs...)
}

var errClosed = errors.New("client is closed")

// Client is a connection to a cluster. It is safe for concurrent use.
type Client struct {
	cfg     Config
	book    *addressBook
	running sync.WaitGroup // goroutines of streams

	mu      sync.Mutex                  // guards the rest
	conns   map[string]*grpc.ClientConn // by address; made when first used
	streams map[*grpc.ClientConn]*submitStream
	closed  bool
}

// New returns a client for the cluster that has coordinators at cfg.Addrs. It
// does not connect: the first call does. The caller closes it.
func New(cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, &Error{Kind: ErrInvalid, Message: err.Error()}
	}
	return &Client{
		cfg:   cfg,
		book:  newAddressBook(cfg.Addrs),
		conns: make(map[string]*grpc.ClientConn), streams: make(map[*grpc.ClientConn]*submitStream),
	}, nil
}

// Close closes all connections; calls under way end with an error.
func (c *Client) Close() error {
	c.mu.Lock()
	conns := c.conns
	c.conns, c.closed = nil, true
	c.mu.Unlock()
	var errs []error
	for _, conn := range conns {
		errs = append(errs, conn.Close())
	}
	c.running.Wait()
	return errors.Join(errs...)
}

// conn returns the connection to addr, made at the first use.
func (c *Client) conn(addr string) (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	if conn, ok := c.conns[addr]; ok {
		return conn, nil
	}
	conn, err := grpc.NewClient("passthrough:///"+addr, c.dialOptions()...)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", addr, err)
	}
	c.conns[addr] = conn
	return conn, nil
}

// dialOptions are those of every connection. The address is passed through to
// Dial, so that a name is looked up anew at each connect. gRPC's own pause
// between connects is short because the client has its own between rounds.
// Keepalive is slow on purpose: pings of Identify watch over calls in flight
// (guard), and a server may punish clients that ping more often than it allows.
func (c *Client) dialOptions() []grpc.DialOption {
	agent := "dtask-client/" + Version()
	if c.cfg.UserAgent != "" {
		agent = c.cfg.UserAgent + " " + agent
	}
	return []grpc.DialOption{
		grpc.WithTransportCredentials(c.cfg.Credentials),
		grpc.WithContextDialer(c.cfg.Dial),
		grpc.WithUserAgent(agent),
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
