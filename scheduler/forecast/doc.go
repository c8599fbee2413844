// Package forecast computes when the tasks of a job would end on an idle fleet, if it is
// known how long each of them runs.
//
// It has no model of its own of who runs when: a [scheduler.Scheduler] assigns the tasks,
// with virtual time instead of a clock.
//
//	ready units ─ Push ─▶ Scheduler ─ Next ─▶ heap of ends, by time
//	     ▲                    ▲                        │
//	     └─ what waited ◀─────┴────── Release ◀────────┘ all that end at the earliest time
//
// What a cluster needs to pass a task on, a few milliseconds, takes no time here, and no
// task fails or is prefetched. Like the scheduler it is pure: equal arguments give equal
// results.
package forecast
