package raftnode

import (
	"context"
	"io"
	"log"
	"log/slog"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/dtask/dtask/internal/loglimit"
)

// hclogAdapter writes raft's messages with slog. What raft calls an error it
// mostly heals by itself (a peer that is away), so it is a warning here; what a
// human must look at comes through Config.Fatal. A warning that repeats about
// the same peer is written once every five seconds.
type hclogAdapter struct {
	log     *slog.Logger
	name    string
	implied []any
	limit   *loglimit.Limiter
}

var _ hclog.Logger = (*hclogAdapter)(nil)

func newHCLog(logger *slog.Logger) *hclogAdapter {
	return &hclogAdapter{log: logger, limit: &loglimit.Limiter{}}
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

// slogLevel maps levels; see the type's comment for errors.
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

// slogArgs renames raft's keys to our form.
func slogArgs(args []any) []any {
	out := make([]any, 0, len(args)+2)
	for i, arg := range args {
		key, ok := arg.(string)
		switch {
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

// peerOf returns whom a message is about, if it says so.
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

func (h *hclogAdapter) enabled(level hclog.Level) bool {
	return h.log.Enabled(context.Background(), slogLevel(level))
}

// IsTrace implements hclog.Logger.
func (h *hclogAdapter) IsTrace() bool { return h.enabled(hclog.Trace) }

// IsDebug implements hclog.Logger.
func (h *hclogAdapter) IsDebug() bool { return h.enabled(hclog.Debug) }

// IsInfo implements hclog.Logger.
func (h *hclogAdapter) IsInfo() bool { return h.enabled(hclog.Info) }

// IsWarn implements hclog.Logger.
func (h *hclogAdapter) IsWarn() bool { return h.enabled(hclog.Warn) }

// IsError implements hclog.Logger.
func (h *hclogAdapter) IsError() bool { return h.enabled(hclog.Error) }

// ImpliedArgs implements hclog.Logger.
func (h *hclogAdapter) ImpliedArgs() []any { return h.implied }

// With implements hclog.Logger.
func (h *hclogAdapter) With(args ...any) hclog.Logger {
	return &hclogAdapter{log: h.log.With(slogArgs(args)...), name: h.name, implied: append(slices.Clip(h.implied), args...), limit: h.limit}
}

// Name implements hclog.Logger.
func (h *hclogAdapter) Name() string { return h.name }

// Named implements hclog.Logger.
func (h *hclogAdapter) Named(name string) hclog.Logger {
	if h.name != "" {
		name = h.name + "." + name
	}
	return h.ResetNamed(name)
}

// ResetNamed implements hclog.Logger.
func (h *hclogAdapter) ResetNamed(name string) hclog.Logger {
	return &hclogAdapter{log: h.log, name: name, implied: h.implied, limit: h.limit}
}

// SetLevel implements hclog.Logger; the slog handler decides the level.
func (h *hclogAdapter) SetLevel(hclog.Level) {}

// GetLevel implements hclog.Logger.
func (h *hclogAdapter) GetLevel() hclog.Level {
	for _, level := range []hclog.Level{hclog.Trace, hclog.Debug, hclog.Info} {
		if h.enabled(level) {
			return level
		}
	}
	return hclog.Warn
}

// StandardLogger implements hclog.Logger.
func (h *hclogAdapter) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(h.log.Handler(), slog.LevelInfo)
}

// StandardWriter implements hclog.Logger.
func (h *hclogAdapter) StandardWriter(opts *hclog.StandardLoggerOptions) io.Writer {
	return h.StandardLogger(opts).Writer()
}
