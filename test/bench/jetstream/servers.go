package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// replicas is the number of servers.
const replicas = 3

// servers are the processes of a cluster, and their data.
type servers struct {
	dir       string
	addresses [replicas]string // for clients
	processes []*exec.Cmd
	conns     []*nats.Conn
}

// start starts a cluster of three servers that sync each write.
func start(program string) (_ *servers, err error) {
	s := &servers{}
	if s.dir, err = os.MkdirTemp("", "jetstream-"); err != nil {
		return nil, fmt.Errorf("creating directory: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	ports, err := freePorts(2 * replicas)
	if err != nil {
		return nil, err
	}
	var routes []string
	for _, p := range ports[replicas:] {
		routes = append(routes, fmt.Sprintf("%q", "nats://"+p))
	}
	for i := range replicas {
		s.addresses[i] = ports[i]
		config := fmt.Sprintf("listen: %q\nserver_name: s%d\njetstream { store_dir: %q, sync_interval: always }\ncluster { name: bench, listen: %q, routes: [%s] }\n",
			ports[i], i, filepath.Join(s.dir, fmt.Sprint(i)), ports[replicas+i], strings.Join(routes, ", "))
		path := filepath.Join(s.dir, fmt.Sprintf("%d.conf", i))
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			return nil, fmt.Errorf("writing configuration: %w", err)
		}
		p := exec.Command(program, "-c", path)
		if err := p.Start(); err != nil {
			return nil, fmt.Errorf("starting server: %w", err)
		}
		s.processes = append(s.processes, p)
	}
	return s, nil
}

// connect connects to a server, once it listens.
func (s *servers) connect(ctx context.Context, i int) (jetstream.JetStream, error) {
	for {
		conn, err := nats.Connect("nats://" + s.addresses[i])
		if err == nil {
			s.conns = append(s.conns, conn)
			return jetstream.New(conn)
		}
		if pause(ctx) != nil {
			return nil, fmt.Errorf("connecting: %w", err)
		}
	}
}

// stop ends the servers and removes their data.
func (s *servers) stop() error {
	for _, c := range s.conns {
		c.Close()
	}
	var errs []error
	for _, p := range s.processes {
		errs = append(errs, p.Process.Kill())
		_ = p.Wait() // it was killed
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// freePorts returns addresses on loopback that nobody listens on.
func freePorts(count int) ([]string, error) {
	var list []string
	for range count {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding port: %w", err)
		}
		defer l.Close()
		list = append(list, l.Addr().String())
	}
	return list, nil
}
