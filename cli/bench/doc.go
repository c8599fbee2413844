// Package bench generates load for dtaskctl bench: it submits jobs of tasks that do
// nothing, waits for them, and reports throughput and latency.
//
//	schedule ─ batches ─► submitters ─ jobs ─► waiters
//	   ▲                                          │
//	   └────────────── window ◄───────────────────┘
//
// The window bounds the jobs that are submitted and unfinished. Run waits for all
// goroutines that it starts.
package bench
