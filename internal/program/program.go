// Package program is what the programs have in common at their edges: how they
// log, how signals end them, and what their exit codes mean. It is for package
// main alone.
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
	ExitFatal  = 70  // a store failed, or data is damaged: look before starting again
	ExitAtOnce = 130 // a further signal
)

// UsageError is a mistake of whoever started the program.
type UsageError struct{ Err error }

// Error implements error.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *UsageError) Unwrap() error { return e.Err }

// NewLogger makes a logger that writes to out. Its error names the flag.
func NewLogger(out io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level: %q is none of debug, info, warn, error", level)
	}
	options := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(out, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(out, options)), nil
	default:
		return nil, fmt.Errorf("--log-format: %q is neither text nor json", format)
	}
}

// UntilSignal is done at the first SIGTERM or SIGINT. Each further one calls the
// next of the functions, which must not block, and one after them ends the
// process at once. stop must be called, once or more; it waits for what was started.
func UntilSignal(parent context.Context, log *slog.Logger, further ...func()) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 4) // some may come before we look
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for count := 1; ; count++ {
			select {
			case sig := <-signals:
				if count > 1+len(further) {
					log.WarnContext(parent, "another signal, ending at once", "signal", sig.String())
					os.Exit(ExitAtOnce) //nolint:forbidigo // nothing is waited for: that is the point
				}
				log.InfoContext(parent, "signal", "signal", sig.String(), "number", count)
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
		<-ended
		cancel()
	})
}
