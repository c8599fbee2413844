package raftnode

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/dtask/dtask/internal/loglimit"
)

// hclogAdapter writes raft's messages with slog. Raft mostly recovers by itself from
// what it logs as an error, such as an unreachable peer, so that is a warning here;
// what an operator must act on is passed to Config.Fatal. A warning that repeats about
// the same peer is written once every five seconds.
type hclogAdapter struct {
	hclog.Logger // discards: the methods that raft does not use

	log   *slog.Logger
	limit *loglimit.Limiter
}

var _ hclog.Logger = (*hclogAdapter)(nil)

func newHCLog(logger *slog.Logger) *hclogAdapter {
	return &hclogAdapter{Logger: hclog.NewNullLogger(), log: logger, limit: &loglimit.Limiter{}}
}

// Log implements hclog.Logger.
func (h *hclogAdapter) Log(level hclog.Level, msg string, args ...any) {
	to := slogLevel(level)
	if !h.log.Enabled(context.Background(), to) {
		return
	}
	attrs := slogArgs(args)
	if to >= slog.LevelWarn {
		suppressed, ok := h.limit.Allow(msg + peerOf(args))
		if !ok {
			return
		}
		if suppressed > 0 {
			attrs = append(attrs, "suppressed", suppressed)
		}
	}
	h.log.Log(context.Background(), to, msg, attrs...) //nolint:sloglint // raft's own message
}

// slogLevel maps levels; see hclogAdapter for errors.
func slogLevel(level hclog.Level) slog.Level {
	switch level {
	case hclog.Trace:
		return slog.LevelDebug - 4
	case hclog.NoLevel, hclog.Debug, hclog.Off:
		return slog.LevelDebug
	case hclog.Info:
		return slog.LevelInfo
	case hclog.Warn, hclog.Error:
		return slog.LevelWarn
	default:
		return slog.LevelDebug
	}
}

// slogArgs renames raft's keys to the style of dtask's, and formats values that raft
// passes with their format (hclog.Fmt).
func slogArgs(args []any) []any {
	out := make([]any, 0, len(args)+2)
	for i, arg := range args {
		key, ok := arg.(string)
		formatted, isFormat := arg.(hclog.Format)
		switch {
		case isFormat:
			out = append(out, sprint(formatted))
		case i%2 == 1 || !ok:
			out = append(out, arg)
		case key == "error":
			out = append(out, "err")
		default:
			out = append(out, strings.ReplaceAll(key, "-", "_"))
		}
	}
	return out
}

// sprint formats a value: its first element is the format, the others are arguments.
func sprint(f hclog.Format) string {
	if len(f) == 0 {
		return ""
	}
	format, ok := f[0].(string)
	if !ok {
		return fmt.Sprint([]any(f)...)
	}
	return fmt.Sprintf(format, f[1:]...)
}

// peerOf returns the peer that a message is about, or "".
func peerOf(args []any) string {
	for i := 0; i+1 < len(args); i += 2 {
		if key, ok := args[i].(string); ok && (key == "peer" || key == "target" || key == "server-id") {
			return slog.AnyValue(args[i+1]).String()
		}
	}
	return ""
}

// Trace implements hclog.Logger.
func (h *hclogAdapter) Trace(msg string, args ...any) { h.Log(hclog.Trace, msg, args...) }

// Debug implements hclog.Logger.
func (h *hclogAdapter) Debug(msg string, args ...any) { h.Log(hclog.Debug, msg, args...) }

// Info implements hclog.Logger.
func (h *hclogAdapter) Info(msg string, args ...any) { h.Log(hclog.Info, msg, args...) }

// Warn implements hclog.Logger.
func (h *hclogAdapter) Warn(msg string, args ...any) { h.Log(hclog.Warn, msg, args...) }

// Error implements hclog.Logger.
func (h *hclogAdapter) Error(msg string, args ...any) { h.Log(hclog.Error, msg, args...) }

// With implements hclog.Logger.
func (h *hclogAdapter) With(args ...any) hclog.Logger {
	return &hclogAdapter{Logger: h.Logger, log: h.log.With(slogArgs(args)...), limit: h.limit}
}

// Named implements hclog.Logger. The name is not logged.
func (h *hclogAdapter) Named(string) hclog.Logger { return h }

// ResetNamed implements hclog.Logger.
func (h *hclogAdapter) ResetNamed(string) hclog.Logger { return h }
