package transport

import (
	"context"
	"net"
	"time"
)

// unackedTimeout is how long a peer may leave sent bytes unacknowledged.
const unackedTimeout = 3 * time.Second

// keepAlive detects a vanished peer within about unackedTimeout while nothing is being
// sent.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 3}

// DialTCP opens a connection that detects a vanished peer soon. It waits for the name
// server if the address has a name; a Dialer does not.
func DialTCP(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{KeepAliveConfig: keepAlive}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	tuneConn(conn)
	return conn, nil
}

// tuneConn sets the options of the TCP connection under conn, if there is one.
func tuneConn(conn net.Conn) {
	if outer, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = outer.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(keepAlive)
		setUserTimeout(tcp, unackedTimeout)
	}
}
