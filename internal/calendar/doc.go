// Package calendar computes when a schedule fires. It is pure: it has no clock, no
// randomness and no I/O. The zone is passed in, and time is an argument.
//
//	text ─ ParseCron, ParsePoint ─► Config ─ New ─► Schedule ─ Next(after) ─► Tick
//
// # Wall clocks and instants
//
// A zone is a sequence of segments with a constant offset. Between two segments, the wall
// clock is set forward, and some of its times do not exist (a gap), or back, and some
// occur twice (a repeat). Shifts of 30 minutes, of two hours and of a whole day exist, and
// shifts at midnight: nothing here assumes an hour.
//
//	instants   ──────────────┬──────────────►      ─────────────┬──────────────►
//	wall clock 01:00 … 01:59 │ 03:00 … 03:59       02:00 … 02:59│ 02:00 … 02:59
//	                        gap                                repeat
//
// An expression with a *, a range or a step in its minute or hour is an interval: it fires
// at each instant at which the wall clock matches. Any other expression is fixed: each of
// its wall-clock times is a tick. One in a gap fires right after the gap or not at all
// ([Gap]), and one in a repeat fires at its first occurrence or at both ([Repeat]).
//
// # Speed
//
// Dates that match are found by arithmetic on the wall clock alone, a month at a time, and
// only then mapped to instants, a segment at a time. So Next takes microseconds even for a
// 29 February eight years ahead.
//
// A [Schedule] is immutable and safe for concurrent use.
package calendar
