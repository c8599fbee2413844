package show

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Ago is how long before now a moment, in milliseconds since 1970, was: 3m ago.
// It is empty for 0.
func Ago(ms int64, now time.Time) string {
	if ms == 0 {
		return ""
	}
	d := now.Sub(time.UnixMilli(ms))
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	}
	return fmt.Sprintf("%dd ago", int(d.Hours()/24))
}

// Took is the time between two moments in milliseconds since 1970; up to now if
// the second is 0, and empty if the first is.
func Took(from, to int64, now time.Time) string {
	if from == 0 {
		return ""
	}
	if to == 0 {
		to = now.UnixMilli()
	}
	return Duration(time.Duration(max(to-from, 0)) * time.Millisecond)
}

// Duration is a time as people say it: 12ms, 9.8s, 2m14s, 3h05m, 2d4h.
func Duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", float64(d/(100*time.Millisecond))/10)
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}

// Count is a number with commas between the thousands.
func Count[T ~int | ~uint32 | ~uint64 | ~int64](n T) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Plural is a number and its noun: 1 task, 2 tasks.
func Plural[T ~int | ~uint32 | ~uint64 | ~int64](n T, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Count(n) + " " + noun + "s"
}

// States tells how many there are in each state: "12 completed, 3 running".
func States(n map[string]uint32) string {
	words := make([]string, 0, len(n))
	for _, state := range slices.Sorted(maps.Keys(n)) {
		words = append(words, Count(n[state])+" "+state)
	}
	return strings.Join(words, ", ")
}

// Levels tells in short how many tasks there are in each topological level:
// "3 tasks in 2 levels: 2 → 1". Many levels are folded in the middle.
func Levels(levels []uint32) string {
	const head, tail = 5, 2
	var total uint64
	words := make([]string, 0, len(levels))
	for _, n := range levels {
		total += uint64(n)
		words = append(words, Count(n))
	}
	if len(words) > head+tail+1 {
		words = slices.Concat(words[:head], []string{"…"}, words[len(words)-tail:])
	}
	return fmt.Sprintf("%s in %s: %s", Plural(total, "task"), Plural(len(levels), "level"), strings.Join(words, " → "))
}

// Labels are labels in one line, sorted: k=v,k=v.
func Labels(labels map[string]string) string {
	words := make([]string, 0, len(labels))
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, k+"="+labels[k])
	}
	return strings.Join(words, ",")
}
