//go:build linux

package deploy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/chaos/netns"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// setupLimit bounds the setup of a cluster and its first job. It takes some seconds.
const setupLimit = 30 * time.Second

// A command is a line of the documentation: where it is typed, and what.
type command struct {
	machines []string
	line     string
}

// documented matches a command after its prompt, which may have a comment.
var documented = regexp.MustCompile(`^([^$]+)\$\s+(.*?)(?:\s+#.*)?$`)

// commands are those in the first block below a heading of a page.
func commands(t *testing.T, page, heading string) []command {
	t.Helper()
	root, err := cluster.Root()
	clustertest.Must(t, err)
	text, err := os.ReadFile(filepath.Join(root, page))
	clustertest.Must(t, err)
	_, section, found := strings.Cut(string(text), "\n"+heading+"\n")
	parts := strings.SplitN(section, "\n```\n", 3)
	if !found || len(parts) < 3 {
		t.Fatalf("%s has no block below %q", page, heading)
	}
	var list []command
	for line := range strings.Lines(parts[1]) {
		m := documented.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			t.Fatalf("%s: the command %q has no prompt that names a machine", page, line)
		}
		names := strings.Split(strings.TrimSpace(m[1]), ", ")
		if names[0] == "w1…wN" {
			names = []string{"w1", "w2", "w3"}
		}
		list = append(list, command{names, m[2]})
	}
	return list
}

// joinString matches a join string, and placeholder what the documentation has instead.
var joinString = regexp.MustCompile(`dtj1-[a-z0-9]+`)

const placeholder = "dtj1-…"

// typed is a documented command as it is typed on a machine: with the join string for it,
// and with the machine's own name.
func (c command) typed(name string, joins []string) string {
	line := c.line
	for i, program := range []string{"dtaskd join", "dtask-worker", "dtaskctl login"} {
		if strings.Contains(line, program) && len(joins) > i {
			line = strings.ReplaceAll(line, placeholder, joins[i])
		}
	}
	return strings.ReplaceAll(line, " "+c.machines[0]+":", " "+name+":")
}

// play types a command on one of its machines and waits until it has done its work. It
// returns its standard output so far.
func (s *site) play(c command, name string, joins []string) string {
	s.t.Helper()
	m, line := s.machines[name], c.typed(name, joins)
	for start, done := range map[string]string{
		"sudo dtaskd init": "dtaskctl login", "sudo dtaskd join": "has a vote", "dtask-worker": "session opened",
	} {
		if strings.HasPrefix(line, start) {
			return s.await(m.start(name, line), done)
		}
	}
	return m.must(line)
}

func TestTheDocumentedCommandsSecureAClusterAndRunAJob(t *testing.T) {
	list := commands(t, "docs/security.md", "## A secured cluster")
	if readme := commands(t, "README.md", "### A cluster"); fmt.Sprint(readme) != fmt.Sprint(list) {
		t.Errorf("README.md has %q, and docs/security.md has %q", readme, list)
	}
	if len(list) != 5 { // six commands, with one worker: two machines type the second one
		t.Fatalf("docs/security.md has the commands %q", list)
	}
	s := newSite(t, "m1", "m2", "m3", "w1", "w2", "w3", "you")
	const canary = "canary-of-a-job-5e1f8d"
	job := cluster.JobFile("first",
		cluster.TaskFile{"id": "a", "run": "echo $VALUE " + canary + "-run", "env": map[string]string{"VALUE": canary + "-env"}},
		cluster.Builtin("b", "echo", canary+"-payload").After("a"),
	)
	clustertest.Must(t, os.WriteFile(filepath.Join(s.machines["you"].home(), "job.yaml"), []byte(job), 0o600))
	capture, err := s.network.Capture()
	clustertest.Must(t, err)

	began := time.Now()
	var joins []string
	for _, c := range list {
		for _, name := range c.machines {
			if printed := s.play(c, name, joins); joins == nil {
				joins = joinString.FindAllString(printed, -1)
			}
		}
	}
	took := time.Since(began)
	t.Logf("| three coordinators, three workers and a job | %7s |", took.Round(10*time.Millisecond))
	if took > setupLimit {
		t.Errorf("the commands took %v, want at most %v", took, setupLimit)
	}
	if len(joins) != 3 {
		t.Fatalf("init printed %d join strings", len(joins))
	}
	s.hasMembers(3, 3)
	streams, other, err := capture.Stop()
	clustertest.Must(t, err)
	hidden := make(secrets)
	hidden.add("the job", []byte(canary))
	hidden.addJoinStrings(t, joins)
	hidden.addToken(t, s.machines["you"].token())
	s.sentOnlyTLS(streams, hidden)
	hidden.wantIn(t, "packets without TCP", other)
}

// hasMembers checks how many coordinators vote and how many workers are up.
func (s *site) hasMembers(coordinators, workers int) {
	s.t.Helper()
	you := s.machines["you"]
	s.until("all machines are members", func() error {
		var status cluster.Status
		var list struct {
			Workers []cluster.WorkerInfo `json:"workers"`
		}
		err := errors.Join(you.run("", "dtaskctl cluster status -o json").Into(&status), you.run("", "dtaskctl worker list -o json").Into(&list))
		voters := 0
		for _, m := range status.Members {
			if m.Voter && m.State != "unreachable" {
				voters++
			}
		}
		if voters != coordinators || len(list.Workers) != workers {
			err = errors.Join(err, fmt.Errorf("got %+v and %+v, want %d voters and %d workers", status, list, coordinators, workers))
		}
		return err
	})
}

// token is the token that dtaskctl login has stored.
func (m *machine) token() string {
	m.t.Helper()
	files, err := filepath.Glob(filepath.Join(m.home(), ".config", "dtask", "*.token"))
	clustertest.Must(m.t, err)
	if len(files) != 1 {
		m.t.Fatalf("the token is in %v", files)
	}
	text, err := os.ReadFile(files[0])
	clustertest.Must(m.t, err)
	return strings.TrimSpace(string(text))
}

// sentOnlyTLS checks that each connection consists of records of TLS from its first byte
// on, has no secret, and that every machine has at least one.
func (s *site) sentOnlyTLS(streams []netns.Stream, hidden secrets) {
	s.t.Helper()
	bytesOf := make(map[string]int)
	for _, stream := range streams {
		where := fmt.Sprintf("what %s sent to %s", stream.From, stream.To)
		if err := checkTLS(stream.Data); err != nil {
			s.t.Errorf("%s: %v", where, err)
		}
		hidden.wantIn(s.t, where, stream.Data)
		bytesOf[stream.From.Addr().String()] += len(stream.Data)
	}
	for name, m := range s.machines {
		s.t.Logf("%s sent %d bytes", name, bytesOf[m.host.IP])
		if bytesOf[m.host.IP] < 1000 {
			s.t.Errorf("%s has sent %d bytes: the capture proves nothing", name, bytesOf[m.host.IP])
		}
	}
}

// checkTLS returns an error unless data are records of TLS 1.3, RFC 8446 §5: first some of
// a handshake, and then only encrypted ones. The last one may be cut.
func checkTLS(data []byte) error {
	const header, maxRecord = 5, 1<<14 + 256
	const change, alert, handshake, encrypted = 20, 21, 22, 23
	secured := false
	for at := 0; at+header <= len(data); {
		kind, length := data[at], int(binary.BigEndian.Uint16(data[at+3:]))
		switch {
		case data[at+1] != 3 || length > maxRecord:
			return fmt.Errorf("no record of TLS at byte %d: % x", at, data[at:min(len(data), at+20)])
		case at == 0 && kind != handshake && kind != alert:
			return fmt.Errorf("it begins with a record of type %d", kind)
		case secured && kind != encrypted && kind != change:
			return fmt.Errorf("a record of type %d at byte %d is not encrypted", kind, at)
		}
		secured = secured || kind == encrypted
		at += header + length
	}
	return nil
}

// The check that everything is encrypted finds what is not.
func TestPlaintextIsNotTakenForTLS(t *testing.T) {
	t.Parallel()
	record := func(kind byte, text string) []byte {
		return append([]byte{kind, 3, 3, 0, byte(len(text))}, text...)
	}
	for name, data := range map[string][]byte{
		"plaintext":           []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
		"plaintext afterward": append(record(22, "hello"), "PRI * HTTP/2.0"...),
		"no handshake":        record(23, "data"),
		"a clear record":      bytes.Join([][]byte{record(22, "hello"), record(23, "data"), record(22, "key")}, nil),
	} {
		if checkTLS(data) == nil {
			t.Errorf("%s is taken for TLS", name)
		}
	}
	if err := checkTLS(bytes.Join([][]byte{record(22, "hello"), record(20, "\x01"), record(23, "data")}, nil)); err != nil {
		t.Error(err)
	}
	hidden := secrets{"canary": []byte("canary")}
	if got := hidden.in([]byte("a canary sings")); len(got) != 1 {
		t.Errorf("found %v", got)
	}
}
