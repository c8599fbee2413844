package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// startDev starts dtaskd --dev and waits until it is ready.
func startDev(t *testing.T) (*cluster.Coordinator, cluster.Ctl) {
	t.Helper()
	ctx := t.Context()
	programs, err := cluster.Find()
	clustertest.Must(t, err)
	listen, err := cluster.FreePort(ctx)
	clustertest.Must(t, err)
	web, err := cluster.FreePort(ctx)
	clustertest.Must(t, err)
	dev := &cluster.Coordinator{
		HTTP: web,
		Process: cluster.NewProcess("dev", t.TempDir(), programs.Path("dtaskd"), []string{"--dev", "--slots", "2", "--listen", listen, "--http", web},
			[]string{"TMPDIR=" + t.TempDir()}), // it leaves its data there if it is killed
	}
	clustertest.Must(t, dev.Start(ctx))
	t.Cleanup(func() { clustertest.Must(t, dev.Kill()) })
	clustertest.Must(t, cluster.Until(ctx, "the process is ready", guard, func(ctx context.Context) error { return dev.Get(ctx, "/readyz") }))
	return dev, cluster.Ctl{Programs: programs, Addrs: []string{listen}}
}

// printed waits until a process has printed a text, and returns all of its output.
func printed(t *testing.T, p *cluster.Coordinator, text string) string {
	t.Helper()
	said := ""
	clustertest.Must(t, cluster.Until(t.Context(), "the output has "+text, guard, func(context.Context) (err error) {
		if said, err = p.Log(); err == nil && !strings.Contains(said, text) {
			err = fmt.Errorf("got %q", said)
		}
		return err
	}))
	return said
}

func TestTheCommandsThatDevPrintsRunAsTheyAre(t *testing.T) {
	t.Parallel()
	dev, ctl := startDev(t)
	said := printed(t, dev, "Press Ctrl-C to stop.")
	settings, _, _ := strings.Cut(said, "\n")
	for name, want := range map[string]bool{"msg=configuration version=": true, "slots=2": true, "dev=true": true, "task-timeout=": false} {
		if strings.Contains(settings, name) != want {
			t.Errorf("the first line, which has the settings that differ from the defaults, has %s: %v, want %v:\n%s", name, !want, want, settings)
		}
	}
	var commands []string
	for line := range strings.Lines(said) {
		if command, ok := strings.CutPrefix(line, "  "); ok && strings.Contains(command, "dtaskctl") {
			commands = append(commands, command)
		}
	}
	if len(commands) < 3 {
		t.Fatalf("got the commands %q", commands)
	}
	shell := exec.CommandContext(t.Context(), "/bin/sh", "-e", "-c", strings.Join(commands, "")) //nolint:gosec // printed by the program under test
	shell.Env = append(os.Environ(), "DTASK_STATE_DIR="+t.TempDir(), "DTASK_ADDR=127.0.0.1:1")
	shell.Dir = t.TempDir()
	if out, err := shell.CombinedOutput(); err != nil || !strings.Contains(string(out), "hello") {
		t.Errorf("the commands %q: %v\n%s", commands, err, out)
	}

	root, err := cluster.Root()
	clustertest.Must(t, err)
	a := ctl.Run(t.Context(), "submit", filepath.Join(root, "examples", "params.yaml"), "--wait", "-o", "json",
		"--set", "day=2026-05-02", "--set", `title="$(exit 3)" 'x'`, "--set", "parts=3")
	clustertest.Must(t, a.Err())
	var job struct {
		ID, Name   string
		TasksTotal int `json:"tasks_total"`
		Params     map[string]string
	}
	clustertest.Must(t, a.Into(&job))
	if job.Name != "report-2026-05-02" || job.TasksTotal != 4 || job.Params["parts"] != "3" || job.Params["level"] != "short" {
		t.Errorf("got %+v", job)
	}
	a = ctl.Run(t.Context(), "result", job.ID)
	if got, want := strings.TrimSpace(a.Stdout), `"$(exit 3)" 'x' for 2026-05-02, short`; a.Code != 0 || got != want {
		t.Errorf("got %s, want %s", a, want)
	}
	a = ctl.Run(t.Context(), "submit", filepath.Join(root, "examples", "classic.yaml"))
	if a.Code != 3 || !strings.Contains(a.Stderr, "unsupported scheme") {
		t.Errorf("a job with inputs that no worker can read: got %s", a)
	}
}

func TestDevPrintsWhatItWaitsForAndStopsAtASecondSignal(t *testing.T) {
	t.Parallel()
	dev, ctl := startDev(t)
	id := clustertest.Submit(t, ctl, cluster.JobFile("long", cluster.TaskFile{"id": "nap", "type": "sleep", "payload": "1h"}))
	clustertest.Must(t, cluster.Until(t.Context(), "the task runs", guard, func(ctx context.Context) error {
		if a := ctl.Run(ctx, "status", id+"/nap", "-o", "json"); !strings.Contains(a.Stdout, `"state": "running"`) {
			return fmt.Errorf("got %s", a)
		}
		return nil
	}))
	clustertest.Must(t, dev.Signal(os.Interrupt))
	printed(t, dev, "Stopping: waiting for 1 running task, at most 30 s.\nPress Ctrl-C again to stop them now")
	clustertest.Must(t, dev.Signal(os.Interrupt))
	if code, err := dev.Wait(t.Context()); err != nil || code != 0 {
		log, _ := dev.Log()
		t.Errorf("after two signals: got exit code %d, %v; want 0\n%s", code, err, log)
	}
}

// A closed terminal sends SIGHUP, usually twice.
func TestDevRemovesItsDataHoweverItIsStopped(t *testing.T) {
	t.Parallel()
	// If the tests run under nohup, the programs that they start would ignore SIGHUP, too.
	// Signals that a process handles have their default effect in its children.
	hangUps := make(chan os.Signal, 1)
	signal.Notify(hangUps, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hangUps) })
	for name, signals := range map[string][]os.Signal{
		"SIGTERM":           {syscall.SIGTERM},
		"Ctrl-C":            {os.Interrupt},
		"a closed terminal": {syscall.SIGHUP, syscall.SIGHUP},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dev, _ := startDev(t)
			said := printed(t, dev, "Press Ctrl-C to stop.")
			_, rest, _ := strings.Cut(said, "data directory")
			line, _, _ := strings.Cut(rest, "\n")
			dir := strings.TrimSpace(line)
			if _, err := os.Stat(dir); err != nil {
				t.Fatal(err)
			}
			for i, s := range signals {
				// It may have stopped before the next one.
				if err := dev.Signal(s); i == 0 || dev.Running() && !errors.Is(err, os.ErrProcessDone) {
					clustertest.Must(t, err)
				}
			}
			limited, cancel := context.WithTimeout(t.Context(), guard)
			defer cancel()
			if code, err := dev.Wait(limited); err != nil || code != 0 {
				t.Errorf("got exit code %d, %v; want 0", code, err)
			}
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("its data directory remains: %v", err)
			}
		})
	}
}

func TestTheFirstFiveMinutes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dev, ctl := startDev(t)

	said, err := dev.Log()
	clustertest.Must(t, err)
	if !strings.Contains(said, "dtaskctl") || !strings.Contains(said, "submit") {
		t.Errorf("the output lacks the next commands:\n%s", said)
	}
	a := ctl.RunWith(ctx, cluster.JobFile("hello", cluster.TaskFile{"id": "greet", "run": "echo hello"}), "submit", "-", "--wait")
	clustertest.Must(t, a.Err())
	var submitted struct {
		ID string `json:"id"`
	}
	a = ctl.Run(ctx, "submit", "--type", "prime", "--payload", "999999937", "--priority", "high", "-o", "json")
	clustertest.Must(t, a.Err())
	clustertest.Must(t, a.Into(&submitted))
	completed(t, ctl, submitted.ID)
	a = ctl.Run(ctx, "result", submitted.ID)
	clustertest.Must(t, a.Err())
	if !strings.Contains(a.Stdout, "true") {
		t.Errorf("got %s for 999999937, want prime", a)
	}
	id := clustertest.Submit(t, ctl, cluster.JobFile("logs", cluster.TaskFile{"id": "write", "run": "echo to stdout; echo to stderr >&2"}))
	completed(t, ctl, id)
	if a = ctl.Run(ctx, "logs", id+"/write"); a.Code != 0 || !strings.Contains(a.Stdout, "to stdout") {
		t.Errorf("log of the task: got %s", a)
	}
	for _, path := range []string{"/healthz", "/metrics"} {
		clustertest.Must(t, dev.Get(ctx, path))
	}

	clustertest.Must(t, dev.Terminate())
	if code, err := dev.Wait(ctx); err != nil || code != 0 {
		log, _ := dev.Log()
		t.Errorf("after SIGTERM: got exit code %d, %v; want 0\n%s", code, err, log)
	}
	if a = ctl.Run(ctx, "status", id, "--timeout", time.Second.String()); a.Code != 7 {
		t.Errorf("after the end of the process: got %s", a)
	}
}
