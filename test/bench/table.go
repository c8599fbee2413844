package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// A row is one figure.
type row struct {
	what    string
	median  float64
	values  []float64 // all that were measured; nil if there is no spread
	unit    string
	setting string
	against string // name of the row it is compared with; empty = none
}

// A table collects rows and prints them together.
type table struct {
	out  io.Writer
	rows []row
}

// add adds a figure that was measured some times; its median stands for it.
func (t *table) add(what, unit, setting string, values ...float64) {
	t.compare(what, unit, setting, "", values...)
}

// compare is add, with the ratio to the row of another name.
func (t *table) compare(what, unit, setting, against string, values ...float64) {
	t.rows = append(t.rows, row{what: what, median: median(values), values: values, unit: unit, setting: setting, against: against})
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

func (t *table) print() error {
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tMEDIAN\tMIN\tMAX\tUNIT\tRATIO\tSETTING")
	for _, r := range t.rows {
		low, high := "", ""
		if len(r.values) > 1 {
			low, high = number(slices.Min(r.values)), number(slices.Max(r.values))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.what, number(r.median), low, high, r.unit, t.ratio(r), r.setting)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// ratio compares a row with the one it names.
func (t *table) ratio(r row) string {
	for _, other := range t.rows {
		if other.what == r.against && other.median != 0 {
			return fmt.Sprintf("%s x %s", strconv.FormatFloat(r.median/other.median, 'g', 3, 64), r.against)
		}
	}
	return ""
}

// number writes a figure with as many digits as it is worth.
func number(x float64) string {
	if x < 100 {
		return strings.TrimSuffix(strconv.FormatFloat(x, 'f', 1, 64), ".0")
	}
	digits := strconv.FormatFloat(x, 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
