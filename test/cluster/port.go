package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
)

// Ports are taken from below the range from which kernels usually take the ports
// of outgoing connections.
const (
	firstPort = 15000
	lastPort  = 32000
)

// FreePort returns a loopback address on which nobody listens. It must stay free
// while the process that has it is down: where all of 127.0.0.0/8 is loopback,
// each address has a host of its own, which no outgoing connection takes and
// hardly another test.
func FreePort(ctx context.Context) (string, error) {
	var config net.ListenConfig
	for range 200 {
		host := "127.0.0.1"
		if runtime.GOOS == "linux" {
			host = fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
		}
		addr := net.JoinHostPort(host, strconv.Itoa(firstPort+rand.IntN(lastPort-firstPort)))
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
