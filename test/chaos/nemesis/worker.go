package nemesis

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/ledger"
)

func workerFaults() []fault {
	return []fault{
		{"F12", "worker-sigkill", killWorker},
		{"F13", "worker-sigstop", zombie},
		{"F20", "worker-twice", twice},
	}
}

func (w *World) takeWorker(fault string) (*cluster.Worker, func(), error) {
	k := w.Worker()
	release, err := w.Take(fault, k.Name)
	return k, release, err
}

// killWorker kills a worker and restarts it, immediately or later.
func killWorker(ctx context.Context, w *World, hold time.Duration) error {
	k, release, err := w.takeWorker("SIGKILL")
	if err != nil {
		return err
	}
	defer release()
	err = w.KillWorker(k)
	if w.Random.IntN(3) > 0 {
		pauseOr(ctx, hold)
	}
	return errors.Join(err, Ensure(context.WithoutCancel(ctx), k.Process))
}

// zombie stops a worker for longer than its liveness timeout: its tasks are assigned
// to others, and then it resumes.
func zombie(ctx context.Context, w *World, hold time.Duration) error {
	k, release, err := w.takeWorker(ledger.Stopped)
	if err != nil {
		return err
	}
	defer release()
	if err := k.Pause(); err != nil {
		return ErrCannot
	}
	pauseOr(ctx, max(hold, 3500*time.Millisecond))
	_ = k.Resume() // if it was killed meanwhile, the nurse restarts it
	return nil
}

// twice starts a second process with a worker's name, and sometimes kills the first
// one immediately. The second takes over then; otherwise it exits.
func twice(ctx context.Context, w *World, hold time.Duration) error {
	k, release, err := w.takeWorker("second of its name")
	if err != nil {
		return err
	}
	defer release()
	flags := []string{"--ledger", w.Ledger}
	if w.Net != nil {
		flags = append(flags, "--via", w.Net.via(k.Name))
	}
	second, err := w.Cluster.SecondOf(k, flags...)
	if err == nil {
		err = second.Start(ctx)
	}
	if err != nil {
		return fmt.Errorf("starting second worker: %w", err)
	}
	if w.Random.IntN(2) == 0 {
		if err := w.KillWorker(k); err != nil {
			return errors.Join(err, second.Kill())
		}
	}
	pauseOr(ctx, hold)
	return errors.Join(second.Kill(), Ensure(context.WithoutCancel(ctx), k.Process))
}

// killCommand kills the process of a running command, and nothing else.
func killCommand(ctx context.Context, w *World, hold time.Duration) error {
	fired := 0
	for deadline := time.Now().Add(max(hold, 8*time.Second)); time.Now().Before(deadline) && fired < 3 && ctx.Err() == nil; {
		line, found, err := w.command()
		if err != nil {
			return err
		}
		if found && syscall.Kill(line.Pid, syscall.SIGKILL) == nil {
			w.harm("SIGKILL of a command", &line)
			fired++
		}
		pauseOr(ctx, 50*time.Millisecond)
	}
	if fired == 0 {
		return fmt.Errorf("no command was running: %w", ErrCannot)
	}
	return nil
}

// command returns the start of a command that is running according to the end of the
// ledger, if there is one.
func (w *World) command() (line ledger.Line, found bool, err error) {
	lines, err := tail(w.Ledger)
	if err != nil {
		return line, false, err
	}
	own := map[int]bool{0: true}
	for _, k := range w.Cluster.Workers() {
		own[k.Pid()] = true
	}
	ended := make(map[int]bool)
	for _, l := range slices.Backward(lines) {
		if l.Kind == ledger.End {
			ended[l.Pid] = true
		} else if !ended[l.Pid] && !own[l.Pid] && isMark(l.Pid) {
			return l, true, nil
		}
	}
	return line, false, nil
}

// isMark reports whether a process is one of our commands: process IDs are reused.
func isMark(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return err == nil && string(bytes.TrimSpace(text)) == "mark"
}

// tail reads the last lines of a ledger.
func tail(path string) ([]ledger.Line, error) {
	const most = 128 << 10 // some seconds under load, which is longer than commands take
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ledger: %w", err)
	}
	defer func() { _ = file.Close() }() // read only
	size, err := file.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = file.Seek(max(0, size-most), io.SeekStart)
	}
	var text []byte
	if err == nil {
		text, err = io.ReadAll(file)
	}
	if err != nil {
		return nil, fmt.Errorf("reading ledger: %w", err)
	}
	var lines []ledger.Line
	for line := range bytes.Lines(text) {
		var l ledger.Line
		if json.Unmarshal(line, &l) == nil { // the first and the last line may be torn
			lines = append(lines, l)
		}
	}
	return lines, nil
}
