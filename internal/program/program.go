// Package program is what the programs share in package main: loggers, signals, exit
// codes, memory and the limit of open files.
package program

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// Exit codes of dtaskd and dtask-worker.
const (
	ExitFailed = 1
	ExitUsage  = 2
	ExitInUse  = 5 // another process has the name or directory: a restart has the same result
	// ExitRefused means that the cluster does not let this machine in.
	ExitRefused = 6
	ExitFatal   = 70  // a store failed or data is damaged: investigate before a restart
	ExitAtOnce  = 130 // another signal
)

// UsageError is an invalid command line or setting.
type UsageError struct{ Err error }

// Error implements error.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UsageError) Unwrap() error { return e.Err }

// NewLogger makes a logger that writes to out. Its error names the flag.
func NewLogger(out io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("invalid --log-level %q: must be debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(out, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(out, options)), nil
	default:
		return nil, fmt.Errorf("invalid --log-format %q: must be text or json", format)
	}
}

// UntilSignal returns a context that is done at the first SIGTERM or SIGINT, or at a
// SIGHUP, which a process gets when its terminal is closed, unless nohup ignores it. Any
// further SIGHUP has no effect, also after stop, while the process cleans up. Each further
// SIGTERM or SIGINT calls the next function, which must not block; the one after the last
// function exits the process. The caller must call stop, which waits for the goroutine and
// may be called again.
func UntilSignal(parent context.Context, log *slog.Logger, further ...func()) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 4) // several may arrive at once
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for count := 1; ; count++ {
			select {
			case sig := <-signals:
				if sig == syscall.SIGHUP && count > 1 {
					count-- // the kernel and the shell each send one
					continue
				}
				if count > 1+len(further) {
					log.WarnContext(parent, "second signal; exiting immediately", "signal", sig.String(), "number", count)
					os.Exit(ExitAtOnce) //nolint:forbidigo // it must not wait for anything
				}
				log.InfoContext(parent, "signal received", "signal", sig.String(), "number", count)
				if count == 1 && !signal.Ignored(syscall.SIGHUP) {
					// No goroutine reads it: without a channel, SIGHUP would end the process after stop.
					signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
				}
				cancel()
				if count > 1 {
					further[count-2]()
				}
			case <-done:
				return
			}
		}
	}()
	return ctx, sync.OnceFunc(func() {
		signal.Stop(signals)
		close(done)
		<-stopped
		cancel()
	})
}
