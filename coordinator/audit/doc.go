// Package audit writes the audit log of a coordinator: who did what, and who was refused.
//
//	calls ─► Log.Record ─► lines in memory, bounded ─► Log.Run, once a second: write, sync
//	           denials beyond 10/s of a caller are counted            │
//	replicated state: last head ◄─ leader, once a minute ◄─ Log.Head ─┘
//
// It owns the files in DATA-DIR/audit: their rotation, their retention, and what happens
// when they can't be written. Their form is that of package internal/audit; package api
// decides which calls are recorded.
//
// Nothing waits for the log. A call that must not happen without being recorded
// (ModeRequired) is refused beforehand, by Admit.
//
// One goroutine, Run, touches the files. Log.mu is held for moments, never while files
// are written.
package audit
