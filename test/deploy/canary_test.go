//go:build linux

package deploy

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// segmented is the coordinator of the story whose log is in segments; that of the others is in
// bolt.
const segmented = "m2"

// A story is a cluster in which everything is read from files that is not for others.
type story struct {
	*site

	hidden   secrets
	own      map[string][]string // what a file may contain, by its path below the site
	answers  []cluster.Answer    // of dtaskctl
	programs map[string]*program
}

// Tokens, join strings, keys and the contents of secrets are only in the files that are
// meant for them: not in logs, data directories, debug bundles, arguments, variables, or on the
// network.
func TestSecretsAreOnlyInTheirOwnFiles(t *testing.T) {
	s := &story{
		site: newSite(t, "m1", "m2", "m3", "w1", "w2", "you"), hidden: make(secrets),
		own: make(map[string][]string), programs: make(map[string]*program),
	}
	seen := s.watchProcesses()
	capture, err := s.network.Capture()
	clustertest.Must(t, err)

	s.setUp()
	s.giveAccess()
	s.runJobs()
	s.saveBundle()
	s.readSegments()
	s.fillStores()
	s.saveBackup()

	streams, other, err := capture.Stop()
	clustertest.Must(t, err)
	s.sentOnlyTLS(streams, s.hidden)
	s.hidden.wantIn(t, "packets without TCP", other)
	seen.wantHidden(t, s.hidden, "@join", "dtaskd.yaml", "STORY_MARK=task", "--token-file")
	for _, a := range s.answers {
		s.hidden.wantIn(t, a.String(), []byte(a.Stdout+a.Stderr))
	}
	if files := s.hidden.wantInFiles(t, s.dir, s.own); files < 30 {
		t.Errorf("only %d files were read", files)
	}
}

// keep writes a file on a machine, which may contain some of the secrets.
func (s *story) keep(machine, name, text string, what ...string) {
	s.t.Helper()
	path := filepath.Join(machine, "home", name)
	clustertest.Must(s.t, os.MkdirAll(filepath.Dir(filepath.Join(s.dir, path)), 0o700))
	s.write(path, text, 0o600)
	s.own[path] = what
}

// call runs dtaskctl.
func (s *story) call(stdin, line string) string {
	s.t.Helper()
	a := s.machines["you"].run(stdin, line)
	s.answers = append(s.answers, a)
	clustertest.Must(s.t, a.Err())
	return a.Stdout
}

// launch starts a program that logs all it can.
func (s *story) launch(name, line, ready string, env ...string) string {
	s.t.Helper()
	s.programs[name] = s.machines[name].start(name, line, append(env, "DTASK_LOG_LEVEL=debug")...)
	return s.await(s.programs[name], ready)
}

// setUp makes a cluster of three coordinators and two workers, and logs in. Nobody types a
// join string.
func (s *story) setUp() {
	s.t.Helper()
	joins := joinString.FindAllString(s.launch("m1", "dtaskd init --advertise m1:7460 --now", "dtaskctl login"), -1)
	if len(joins) != 3 {
		s.t.Fatalf("init printed %d join strings", len(joins))
	}
	s.hidden.addJoinStrings(s.t, joins)
	printed := s.hidden.in([]byte(strings.Join(joins, " ")))
	s.own["logs/m1.log"] = printed // what init prints, which its user copies
	for name, i := range map[string]int{"m2": 0, "m3": 0, "w1": 1, "w2": 1, "you": 2} {
		s.keep(name, "join", joins[i]+"\n", printed...)
	}
	const canary = "secret of w1"
	s.hidden.add(canary, []byte("canary-"+rand.Text()))
	s.keep("w1", "secrets/canary", string(s.hidden[canary]), canary)
	clustertest.Must(s.t, os.Chmod(filepath.Join(s.machines["w1"].home(), "secrets"), 0o700))

	s.launch(segmented, "dtaskd join @join --advertise m2:7460 --now", "has a vote", "DTASK_LOG_STORE=wal")
	s.launch("m3", "dtaskd join - --advertise m3:7460 --now < join", "has a vote")
	s.launch("w1", "dtask-worker --join @join --secrets-dir secrets", "session opened")
	s.launch("w2", "dtask-worker --join - < join", "session opened")
	s.call("", "dtaskctl login @join --name me")
	s.addKeys()
}

// addKeys adds the private keys of all machines.
func (s *story) addKeys() {
	s.t.Helper()
	for _, m := range []string{"m1", "m2", "m3"} {
		for _, key := range []string{"ca.key", "tls.key"} {
			s.addKeyFile(filepath.Join(m, "lib", "dtask", "tls", key))
		}
	}
	var names []string // every coordinator has the same key of the CA
	for _, m := range []string{"m1", "m2", "m3"} {
		path := filepath.Join(s.dir, m, "lib", "dtask", "tls", "ca.key")
		names = append(names, "key of "+path, "text of "+path)
	}
	for _, m := range []string{"m1", "m2", "m3"} {
		s.own[filepath.Join(m, "lib", "dtask", "tls", "ca.key")] = names
	}
	for _, m := range []string{"w1", "w2"} {
		found, err := filepath.Glob(filepath.Join(s.dir, m, "home", ".*", "*", "*", "*", "worker.pem"))
		more, err2 := filepath.Glob(filepath.Join(s.dir, m, "home", ".*", "*", "*", "worker.pem"))
		clustertest.Must(s.t, errors.Join(err, err2))
		if found = append(found, more...); len(found) != 1 {
			s.t.Fatalf("the keys of %s are %v", m, found)
		}
		path, err := filepath.Rel(s.dir, found[0])
		clustertest.Must(s.t, err)
		s.addKeyFile(path)
	}
	token := s.machines["you"].token()
	s.hidden.addToken(s.t, token)
	files, err := filepath.Glob(filepath.Join(s.machines["you"].home(), ".config", "dtask", "*.token"))
	clustertest.Must(s.t, err)
	for _, file := range files {
		path, err := filepath.Rel(s.dir, file)
		clustertest.Must(s.t, err)
		s.own[path] = s.hidden.in([]byte(token))
	}
}

// addKeyFile adds the private key of a file below the site.
func (s *story) addKeyFile(path string) {
	s.t.Helper()
	file := filepath.Join(s.dir, path)
	s.hidden.addKey(s.t, file)
	s.own[path] = []string{"key of " + file, "text of " + file}
}

// giveAccess makes, rotates and uses tokens and join strings.
func (s *story) giveAccess() {
	s.t.Helper()
	s.call("", "dtaskctl token create --role submitter --name ci --out ci.token")
	s.call("", "dtaskctl token rotate "+s.identity("ci")+" --out new.token")
	s.call("", "dtaskctl join-token create user --role reader --out ana.join")
	for _, name := range []string{"ci.token", "new.token"} {
		text, err := os.ReadFile(filepath.Join(s.machines["you"].home(), name))
		clustertest.Must(s.t, err)
		token := strings.TrimSpace(string(text))
		s.hidden.addToken(s.t, token)
		s.own[filepath.Join("you", "home", name)] = s.hidden.in(text)
		if who := s.call("", "dtaskctl whoami --token-file "+name); !strings.Contains(who, "ci") {
			s.t.Errorf("with %s: %s", name, who)
		}
	}
	text, err := os.ReadFile(filepath.Join(s.machines["you"].home(), "ana.join"))
	clustertest.Must(s.t, err)
	s.hidden.add("join string of ana", []byte(strings.TrimSpace(string(text))))
	s.own[filepath.Join("you", "home", "ana.join")] = []string{"join string of ana"}
}

// identity returns the number of the identity with a name.
func (s *site) identity(name string) string {
	s.t.Helper()
	var list struct {
		Tokens []struct {
			ID   string `json:"id"`
			Name string `json:"name"`
		} `json:"tokens"`
	}
	clustertest.Must(s.t, s.machines["you"].run("", "dtaskctl token list -o json").Into(&list))
	for _, x := range list.Tokens {
		if x.Name == name {
			return x.ID
		}
	}
	s.t.Fatalf("no identity is called %s: %+v", name, list)
	return ""
}

// runJobs runs commands that use a secret and fail or complete, with the token of a
// program.
func (s *story) runJobs() {
	s.t.Helper()
	const use = "sha256sum $DTASK_SECRET_CANARY_FILE; sleep 0.1"
	task := cluster.TaskFile{"id": "a", "secrets": []string{"canary"}, "env": map[string]string{"STORY_MARK": "task"}, "run": use}
	s.call(cluster.JobFile("uses", task), "dtaskctl submit - --wait --quiet --token-file new.token")
	fails := cluster.JobFile("fails", cluster.TaskFile{"id": "a", "secrets": []string{"canary"}, "run": use + "; exit 3", "retry": map[string]any{"max": 1, "initial": "1ms"}})
	a := s.machines["you"].run(fails, "dtaskctl submit - --wait --quiet --token-file new.token")
	s.answers = append(s.answers, a)
	if a.Code != 1 {
		s.t.Errorf("a job that fails: %s", a)
	}
	s.call("", "dtaskctl token revoke "+s.identity("ci"))
	refused := s.machines["you"].run("", "dtaskctl list --token-file new.token")
	s.answers = append(s.answers, refused)
	if refused.Code != 6 {
		s.t.Errorf("a revoked token: %s", refused)
	}
}

// saveBundle saves a debug bundle, and checks its files, which are compressed on disk. All
// coordinators log what they can, since they were set up.
func (s *story) saveBundle() {
	s.t.Helper()
	s.call("", "dtaskctl debug --out bundle.tar.gz --profile 1s")
	files := clustertest.DebugFiles(s.t, filepath.Join(s.machines["you"].home(), "bundle.tar.gz"))
	for name, data := range files {
		s.hidden.wantIn(s.t, "bundle.tar.gz: "+name, data)
	}
	for _, id := range []string{"n1", "n2", "n3"} {
		for _, name := range []string{"log.txt", "settings.json", "metrics.txt", "heap.pb.gz", "cpu.pb.gz"} {
			if name = "dtask-debug/" + id + "/" + name; len(files[name]) == 0 {
				s.t.Errorf("the bundle has no %s", name)
			}
		}
	}
}

// readSegments checks the log of the coordinator that keeps it in segments, before a snapshot
// replaces it. The log has all that was done so far, such as the jobs.
func (s *story) readSegments() {
	s.t.Helper()
	found, err := filepath.Glob(filepath.Join(s.machines[segmented].data(), "wal", "*.wal"))
	clustertest.Must(s.t, err)
	var log []byte
	for _, path := range found {
		data, err := os.ReadFile(path)
		clustertest.Must(s.t, err)
		s.hidden.wantIn(s.t, path, data)
		log = append(log, data...)
	}
	if !bytes.Contains(log, []byte("STORY_MARK")) {
		s.t.Errorf("the %d segments of the log don't have the jobs: the check finds nothing", len(found))
	}
}

// saveBackup saves a backup with history, whose files are checked with all others: nothing in
// it is compressed. The jobs that use the secret have left the state.
func (s *story) saveBackup() {
	s.t.Helper()
	s.call("", "dtaskctl backup save cluster.dtbk --with-history")
	data, err := os.ReadFile(filepath.Join(s.machines["you"].home(), "cluster.dtbk"))
	clustertest.Must(s.t, err)
	if !bytes.Contains(data, []byte("STORY_MARK")) {
		s.t.Errorf("the backup of %d bytes does not have the jobs: the check finds nothing", len(data))
	}
}

// awaitMembers waits until all coordinators answer and one leads.
func (s *site) awaitMembers() {
	s.t.Helper()
	s.until("all coordinators answer", func() error {
		var status cluster.Status
		if err := s.machines["you"].run("", "dtaskctl cluster status -o json").Into(&status); err != nil {
			return err
		}
		for _, m := range status.Members {
			if m.State == "unreachable" || status.Leader == "" || len(status.Members) < 3 {
				return fmt.Errorf("%+v", status)
			}
		}
		return nil
	})
}

// fillStores restarts the coordinators so that they write snapshots and a history, and runs
// jobs until they have.
func (s *story) fillStores() {
	s.t.Helper()
	for _, m := range []string{"m1", "m2", "m3"} {
		clustertest.Must(s.t, s.programs[m].Terminate())
		_, err := s.programs[m].Wait(s.t.Context())
		clustertest.Must(s.t, err)
		line := "dtaskd --config /var/lib/dtask/dtaskd.yaml --snapshot-bytes 4096 --keep-jobs 1 --keep-for 1s"
		if m == segmented {
			line += " --log-store wal"
		}
		s.programs[m] = s.machines[m].start(m+"-again", line, "DTASK_LOG_LEVEL=debug")
		s.awaitMembers()
	}
	job := cluster.JobFile("fill", cluster.Builtin("a", "echo", strings.Repeat("x", 1000)))
	s.until("each coordinator has a snapshot and a history", func() error {
		s.call(job, "dtaskctl submit - --wait --quiet")
		for _, m := range []string{"m1", "m2", "m3"} {
			for _, pattern := range []string{"snapshots/*/*", "history.db"} {
				if found, _ := filepath.Glob(filepath.Join(s.machines[m].data(), pattern)); len(found) == 0 {
					return fmt.Errorf("%s has no %s", m, pattern)
				}
			}
		}
		return nil
	})
}
