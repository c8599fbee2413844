package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from below the range from which kernels take the ports of
// outgoing connections, so that the port of a process that is down stays free.
const (
	firstPort = 15000
	lastPort  = 32000
)

// FreePort returns a loopback address on which nobody listens.
func FreePort(ctx context.Context) (string, error) {
	var config net.ListenConfig
	for range 200 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.IntN(lastPort-firstPort)))
		listener, err := config.Listen(ctx, "tcp", addr)
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			return "", fmt.Errorf("looking for a free port: %w", err)
		}
		return addr, nil
	}
	return "", errors.New("looking for a free port: none found")
}
