package show

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/dtask/dtask/internal/document"
)

// Ago returns how long before now a Unix time in milliseconds was, such as
// "3m ago"; empty for 0.
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

// Took returns the time between two Unix times in milliseconds. The second
// defaults to now; the result is empty if the first is 0.
func Took(from, to int64, now time.Time) string {
	if from == 0 {
		return ""
	}
	if to == 0 {
		to = now.UnixMilli()
	}
	return Duration(time.Duration(max(to-from, 0)) * time.Millisecond)
}

// Duration formats a duration with two units at most: 12ms, 9.8s, 2m14s, 3h05m,
// 2d4h.
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

// absolute formats a Unix time in milliseconds for comparison with logs.
func absolute(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05Z") }

// Count formats a number with commas between thousands.
func Count[T ~int | ~uint32 | ~uint64 | ~int64](n T) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Size formats a number of bytes with two or three digits and its unit: 512 B, 1.5 KiB,
// 12 MiB.
func Size(bytes uint64) string {
	if bytes < 1<<10 {
		return fmt.Sprintf("%d B", bytes)
	}
	value, unit := float64(bytes), -1
	for value >= 1023.5 && unit < len(sizeUnits)-1 {
		value /= 1024
		unit++
	}
	if value < 9.95 {
		return fmt.Sprintf("%.1f %s", value, sizeUnits[unit])
	}
	return fmt.Sprintf("%.0f %s", value, sizeUnits[unit])
}

var sizeUnits = []string{"KiB", "MiB", "GiB", "TiB", "PiB"}

// Plural formats a number and its noun: 1 task, 2 tasks.
func Plural[T ~int | ~uint32 | ~uint64 | ~int64](n T, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Count(n) + " " + noun + "s"
}

// Levels summarizes the number of tasks in each topological level: "3 tasks in 2
// levels: 2 → 1". It omits levels in the middle of a long list.
func Levels(levels []uint32) string {
	const head, tail = 5, 2
	var total uint64
	counts := make([]string, 0, len(levels))
	for _, n := range levels {
		total += uint64(n)
		counts = append(counts, Count(n))
	}
	if len(counts) > head+tail+1 {
		counts = slices.Concat(counts[:head], []string{"…"}, counts[len(counts)-tail:])
	}
	return fmt.Sprintf("%s in %s: %s", Plural(total, "task"), Plural(len(levels), "level"),
		strings.Join(counts, " → "))
}

// joinSorted formats the entries of a map in the order of its keys.
func joinSorted[V any](m map[string]V, separator string, format func(key string, value V) string) string {
	parts := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, format(k, m[k]))
	}
	return strings.Join(parts, separator)
}

func formatLabels(labels map[string]string) string {
	return joinSorted(labels, ",", func(k, v string) string { return k + "=" + v })
}

// Params formats values of parameters, in the order of their names. Values that are
// empty, or that a reader could not tell from the next one, are quoted.
func Params(values map[string]string) string {
	return joinSorted(values, "  ", func(name, value string) string {
		if clean := Clean(value); value == "" || clean != value || strings.ContainsAny(value, " \"'=") {
			value = strconv.Quote(value)
		}
		return name + "=" + value
	})
}

// YAML encodes a document as YAML, with the fields of its JSON in their order.
func YAML(doc any) ([]byte, error) {
	text, err := document.Marshal(doc)
	if err != nil {
		return nil, err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil { // JSON is YAML
		return nil, fmt.Errorf("encoding YAML: %w", err)
	}
	blockStyle(&node)
	text, err = yaml.Marshal(&node)
	if err != nil {
		return nil, fmt.Errorf("encoding YAML: %w", err)
	}
	return text, nil
}

// blockStyle removes JSON's braces and quotes. The encoder adds quotes to strings
// that would otherwise be read as numbers.
func blockStyle(n *yaml.Node) {
	if len(n.Content) > 0 || n.Kind == yaml.ScalarNode {
		n.Style = 0
	}
	for _, c := range n.Content {
		blockStyle(c)
	}
}
