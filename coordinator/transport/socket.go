package transport

import (
	"context"
	"net"
	"time"
)

// deadPeer is how long a peer may leave our bytes unacknowledged.
const deadPeer = 3 * time.Second

// keepAlive finds a peer that vanished without a word within about deadPeer also
// when nothing is being sent.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 3}

// DialTCP opens a connection that finds out soon when its other end has vanished. It
// is the default of Config.Dial.
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
		setUserTimeout(tcp, deadPeer)
	}
}
