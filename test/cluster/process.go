package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// A Process is a program that can be started again after it has ended, always
// with the same command line. Its methods may be called from any goroutine.
type Process struct {
	// Name is what the process is called: n1, w1.
	Name string

	path    string
	args    []string
	logPath string

	mu     sync.Mutex // guards all below, path and args
	env    []string
	prefix []string
	run    *running // the present or last one; nil before the first start
}

// StoreVariable is the setting of dtaskd that a test hands on, so that any suite can be
// run over either store of the log.
const StoreVariable = "DTASK_LOG_STORE"

// Stores are the values of --log-store.
func Stores() []string { return []string{"bolt", "wal"} }

// NewProcess makes a process that is not started yet. Its log is NAME.log in
// dir, which is also its home directory; env is added to a small environment.
func NewProcess(name, dir, path string, args, env []string) *Process {
	if store := os.Getenv(StoreVariable); store != "" {
		env = append([]string{StoreVariable + "=" + store}, env...)
	}
	return &Process{
		Name: name, path: path, args: args, logPath: filepath.Join(dir, name+".log"),
		env: append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + os.TempDir()}, env...),
	}
}

// Setenv adds NAME=VALUE to the environment of the lives that follow.
func (p *Process) Setenv(name, value string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.env = append(p.env, name+"="+value) // the last one counts
}

// SetProgram makes the process another program from its next start on.
func (p *Process) SetProgram(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.path = path
}

// AddArgs adds arguments to the command line of the lives that follow.
func (p *Process) AddArgs(args ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.args = append(slices.Clip(p.args), args...)
}

// logStore is the store of a dtaskd's log: its flag counts more than its environment.
func (p *Process) logStore() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	store := "bolt"
	for _, setting := range p.env {
		if value, ok := strings.CutPrefix(setting, StoreVariable+"="); ok {
			store = value // the last one counts
		}
	}
	for i, arg := range p.args {
		if value, ok := strings.CutPrefix(arg, "--log-store="); ok {
			store = value
		} else if arg == "--log-store" && i+1 < len(p.args) {
			store = p.args[i+1]
		}
	}
	return store
}

// Through puts a command line before that of the lives that follow, which must
// end by executing it in its own place: ip netns exec, prlimit.
func (p *Process) Through(prefix ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.prefix = prefix
}

// running is one life of a process.
type running struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed by the goroutine that waits, once code is set
	code  int           // exit code; 128 + the signal's number if one ended it
}

// alive tells whether the process has not been waited for.
func (r *running) alive() bool {
	if r == nil {
		return false
	}
	select {
	case <-r.ended:
		return false
	default:
		return true
	}
}

// Start starts the process, with what it writes going to its log. It is an error
// if it runs already.
func (p *Process) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run.alive() {
		return fmt.Errorf("starting %s: it runs already", p.Name)
	}
	if err := os.MkdirAll(filepath.Dir(p.logPath), 0o755); err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	log, err := os.OpenFile(p.logPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", p.Name, err)
	}
	defer func() { _ = log.Close() }() // the process has its own
	// The process is ended by a method, never by the end of a test's context:
	// what happens to it is for its owner to decide.
	line := slices.Concat(p.prefix, []string{p.path}, p.args)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), line[0], line[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.env, log, log
	cmd.SysProcAttr = processAttributes()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	run := &running{cmd: cmd, ended: make(chan struct{})}
	p.run = run
	go func() {
		defer close(run.ended)
		_ = cmd.Wait() // the state says it all
		run.code = exitCode(cmd.ProcessState)
	}()
	return nil
}

func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// current is the present or last life, or nil.
func (p *Process) current() *running {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

// Running tells whether the process has been started and has not ended.
func (p *Process) Running() bool { return p.current().alive() }

// Pid is the process id of the present or last life, 0 before the first.
func (p *Process) Pid() int {
	if r := p.current(); r != nil {
		return r.cmd.Process.Pid
	}
	return 0
}

// Signal sends a signal to the running process.
func (p *Process) Signal(sig os.Signal) error {
	r := p.current()
	if !r.alive() {
		return fmt.Errorf("signalling %s: it does not run", p.Name)
	}
	if err := r.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("signalling %s: %w", p.Name, err)
	}
	return nil
}

// Kill ends the process with SIGKILL and returns once it is gone. One that does
// not run is left as it is.
func (p *Process) Kill() error {
	r := p.current()
	if !r.alive() {
		return nil
	}
	if err := r.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing %s: %w", p.Name, err)
	}
	<-r.ended
	return nil
}

// Pause stops the process with SIGSTOP: it keeps its connections and does
// nothing.
func (p *Process) Pause() error { return p.Signal(syscall.SIGSTOP) }

// Resume lets a paused process continue.
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }

// Terminate asks the process to end, with SIGTERM.
func (p *Process) Terminate() error { return p.Signal(syscall.SIGTERM) }

// Wait returns the exit code of the process once it has ended: 128 + the
// signal's number if a signal ended it.
func (p *Process) Wait(ctx context.Context) (int, error) {
	r := p.current()
	if r == nil {
		return 0, fmt.Errorf("waiting for %s: it was never started", p.Name)
	}
	select {
	case <-r.ended:
		return r.code, nil
	case <-ctx.Done():
		return 0, fmt.Errorf("waiting for %s to end: %w", p.Name, context.Cause(ctx))
	}
}

// Log is what all lives of the process have written so far.
func (p *Process) Log() (string, error) {
	text, err := os.ReadFile(p.logPath)
	if err != nil {
		return "", fmt.Errorf("reading the log of %s: %w", p.Name, err)
	}
	return string(text), nil
}

// LogHas tells whether a line of the log has all the words.
func (p *Process) LogHas(words ...string) bool {
	text, err := p.Log()
	if err != nil {
		return false
	}
lines:
	for line := range strings.Lines(text) {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue lines
			}
		}
		return true
	}
	return false
}
