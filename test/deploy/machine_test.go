//go:build linux

package deploy

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/chaos/netns"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// guard bounds every wait that is not itself a promise: it keeps a broken test from
// hanging.
const guard = time.Minute

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m)) }

// A site is some machines in one network. Only they are connected to it.
type site struct {
	t        *testing.T
	programs cluster.Programs
	dir      string
	network  *netns.Network
	machines map[string]*machine
}

// A machine is one of a site.
type machine struct {
	*site

	name string
	host *netns.Host
	dir  string
}

// newSite makes machines. It skips the test if that is impossible here.
func newSite(t *testing.T, names ...string) *site {
	t.Helper()
	if err := netns.Available(t.Context()); err != nil {
		t.Skipf("no machines can be made: %v", err)
	}
	programs, err := cluster.Find()
	clustertest.Must(t, err)
	s := &site{t: t, programs: programs, dir: t.TempDir(), machines: make(map[string]*machine)}
	s.network, err = netns.NewMachines(t.Context())
	clustertest.Must(t, err)
	t.Cleanup(func() {
		if err := s.network.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	hosts := "127.0.0.1 localhost\n"
	for _, name := range names {
		m := &machine{site: s, name: name, dir: filepath.Join(s.dir, name)}
		m.host, err = s.network.Add(t.Context(), name)
		clustertest.Must(t, err)
		s.machines[name] = m
		hosts += m.host.IP + " " + name + "\n"
		for _, dir := range []string{m.home(), filepath.Join(m.dir, "lib")} {
			clustertest.Must(t, os.MkdirAll(dir, 0o700))
		}
	}
	s.write("hosts", hosts, 0o644)
	// The tests are root, and need no sudo.
	s.write("sudo", "#!/bin/sh\nexec \"$@\"\n", 0o755)
	if out, err := exec.CommandContext(t.Context(), s.machines[names[0]].prefix()[0], append(s.machines[names[0]].prefix()[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no machines can be made: %v: %s", err, out)
	}
	return s
}

// write writes a file of the site.
func (s *site) write(name, text string, mode os.FileMode) {
	s.t.Helper()
	clustertest.Must(s.t, os.WriteFile(filepath.Join(s.dir, name), []byte(text), mode))
}

// boot makes a process one of the machine with the arguments: name, directory of the
// machine, directory of the site, command.
const boot = `hostname "$1" && mount --bind "$2/lib" /var/lib && mount --bind "$3/hosts" /etc/hosts && cd "$2/home" && shift 3 && exec "$@"`

// prefix is the command line that runs another one on the machine, in its own place.
func (m *machine) prefix() []string {
	return append(m.host.Prefix(), "unshare", "--uts", "sh", "-c", boot, "boot", m.name, m.dir, m.site.dir)
}

func (m *machine) home() string { return filepath.Join(m.dir, "home") }

// data is the default data directory of a coordinator that is started by root.
func (m *machine) data() string { return filepath.Join(m.dir, "lib", "dtask") }

func (m *machine) environment() []string {
	return []string{
		"HOME=" + m.home(),
		"PATH=" + m.programs.Dir + string(os.PathListSeparator) + m.site.dir + string(os.PathListSeparator) + os.Getenv("PATH"),
	}
}

// address is where others reach a port of the machine.
func (m *machine) address(port string) string { return net.JoinHostPort(m.host.IP, port) }

// A program is a command that runs on a machine until the test ends.
type program struct {
	*cluster.Process // whose log is what it writes to standard output

	stderr string // path
}

// start runs a line of a shell in the background.
func (m *machine) start(name, line string, env ...string) *program {
	m.t.Helper()
	logs := filepath.Join(m.site.dir, "logs")
	p := &program{stderr: filepath.Join(logs, name+".stderr")}
	p.Process = cluster.NewProcess(name, logs, "/bin/sh", []string{"-c", "exec " + line + " 2>>" + p.stderr}, append(m.environment(), env...))
	p.Through(m.prefix()...)
	clustertest.Must(m.t, p.Start(m.t.Context()))
	m.t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			m.t.Error(err)
		}
		if m.t.Failed() {
			m.t.Logf("%s wrote:\n%s", name, p.tail())
		}
	})
	return p
}

// output is what a program has written so far.
func (p *program) output() string {
	log, _ := p.Log()
	text, _ := os.ReadFile(p.stderr) // it may not exist yet
	return log + string(text)
}

// tail is the end of what a program has written, without what only its user may see.
func (p *program) tail() string {
	text, _ := os.ReadFile(p.stderr)
	return string(text[max(0, len(text)-2000):])
}

// await returns the standard output of a program once it has written a text.
func (s *site) await(p *program, text string) string {
	s.t.Helper()
	s.until(p.Name+" writes "+text, func() error {
		switch {
		case strings.Contains(p.output(), text):
			return nil
		case !p.Running():
			return fmt.Errorf("it has ended: %s", p.tail())
		}
		return cluster.ErrNotYet
	})
	log, err := p.Log()
	clustertest.Must(s.t, err)
	return log
}

// until waits for a condition.
func (s *site) until(what string, holds func() error) {
	s.t.Helper()
	clustertest.Must(s.t, cluster.Until(s.t.Context(), what, guard, func(context.Context) error { return holds() }))
}

// run runs a line of a shell on the machine, with its standard input.
func (m *machine) run(stdin, line string) cluster.Answer {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 2*guard)
	defer cancel()
	args := append(m.prefix(), "sh", "-c", "exec "+line)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = m.environment()
	cmd.Stdin = strings.NewReader(stdin)
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	a := cluster.Answer{Args: []string{line, "on", m.name}, Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
	if err != nil && a.Code <= 0 {
		a.Code, a.Stderr = -1, a.Stderr+err.Error()
	}
	return a
}

// must runs a command, which must succeed, and returns its standard output.
func (m *machine) must(line string) string {
	m.t.Helper()
	a := m.run("", line)
	clustertest.Must(m.t, a.Err())
	return a.Stdout
}

// dial connects the test to an address of the site, as a process of the machine does.
func (m *machine) dial(ctx context.Context, address string) (net.Conn, error) {
	if name, port, err := net.SplitHostPort(address); err == nil && m.machines[name] != nil {
		address = m.machines[name].address(port)
	}
	return m.host.Dial(ctx, address)
}
