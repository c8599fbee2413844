package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// A row is one figure.
type row struct {
	Section string    `json:"section"`
	What    string    `json:"what"`
	Median  float64   `json:"median"`
	Values  []float64 `json:"values"` // all measurements
	Unit    string    `json:"unit"`
	Setting string    `json:"setting"`
	Against string    `json:"against,omitempty"` // name of the row it is compared with; empty = none
}

// A table collects rows and prints them together.
type table struct {
	Machine machine   `json:"machine"`
	Began   time.Time `json:"began"`
	Quick   bool      `json:"quick"`
	Partial bool      `json:"partial,omitempty"` // some sections only
	Args    string    `json:"args,omitempty"`    // flags of the run, without those of files and notes
	Failed  string    `json:"failed,omitempty"`  // section that was not measured to its end; empty = none
	Rows    []row     `json:"rows"`

	section string // of the next rows
}

// add adds a figure by its measured values; their median represents it. Without
// values it adds nothing: the figure could not be measured here.
func (t *table) add(what, unit, setting string, values ...float64) {
	t.compare(what, unit, setting, "", values...)
}

// compare is add with the ratio to another row.
func (t *table) compare(what, unit, setting, against string, values ...float64) {
	if len(values) == 0 {
		return
	}
	t.Rows = append(t.Rows, row{Section: t.section, What: what, Median: median(values), Values: values, Unit: unit, Setting: setting, Against: against})
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

// print writes the table as text.
func (t *table) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tMEDIAN\tMIN\tMAX\tUNIT\tRATIO\tSETTING")
	section := ""
	for _, r := range t.Rows {
		if r.Section != section {
			section = r.Section
			fmt.Fprintf(w, "[%s]\t\t\t\t\t\t\n", section)
		}
		low, high := r.spread()
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.What, number(r.Median), low, high, r.Unit, t.ratio(r), r.Setting)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// save writes the table as JSON; without a path it does nothing.
func (t *table) save(path string) error {
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return fmt.Errorf("writing figures: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("writing figures: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing figures: %w", err)
	}
	return nil
}

// loadTable reads what save wrote.
func loadTable(path string) (*table, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading figures (make bench makes them): %w", err)
	}
	t := new(table)
	if err := json.Unmarshal(text, t); err != nil {
		return nil, fmt.Errorf("reading figures in %s: %w", path, err)
	}
	return t, nil
}

// spread returns the smallest and the largest value, if there are several.
func (r row) spread() (low, high string) {
	if len(r.Values) < 2 {
		return "", ""
	}
	return number(slices.Min(r.Values)), number(slices.Max(r.Values))
}

// ratio compares a row with the one it names: that of its own section, if both this one and
// another have one of that name.
func (t *table) ratio(r row) string {
	var against row
	for _, other := range t.Rows {
		if other.What == r.Against && other.Median != 0 && (against.What == "" || other.Section == r.Section && against.Section != r.Section) {
			against = other
		}
	}
	if against.What == "" {
		return ""
	}
	text := strconv.FormatFloat(r.Median/against.Median, 'g', 3, 64)
	if mean, deviation, ok := pairedRatio(r.Values, against.Values); ok {
		text = fmt.Sprintf("%s ± %s", strconv.FormatFloat(mean, 'g', 3, 64), number(deviation))
	}
	return fmt.Sprintf("%s x %s", text, strings.TrimSpace(r.Against))
}

// minPaired is how many rounds have a standard error.
const minPaired = 5

// pairedRatio returns the geometric mean of the ratios of the rounds of two rows that were measured
// in turns, and its standard error. Both rows of a round meet the same load of the machine, so that
// this varies less than the ratio of the medians. ok is false for few rounds, and for rows that have
// not the same rounds.
func pairedRatio(values, against []float64) (mean, deviation float64, ok bool) {
	n := float64(len(values))
	if len(values) != len(against) || len(values) < minPaired {
		return 0, 0, false
	}
	sum, squares := 0.0, 0.0
	for i, v := range values {
		if v <= 0 || against[i] <= 0 {
			return 0, 0, false
		}
		x := math.Log(v / against[i])
		sum, squares = sum+x, squares+x*x
	}
	variance := max(squares-sum*sum/n, 0) / (n - 1)
	mean = math.Exp(sum / n)
	return mean, mean * math.Sqrt(variance/n), true
}

// find returns the median of a row of this run, by name.
func (t *table) find(what string) (float64, bool) {
	for _, r := range t.Rows {
		if r.What == what {
			return r.Median, true
		}
	}
	return 0, false
}

// number formats a figure with its significant digits.
func number(x float64) string {
	switch {
	case x != 0 && x < 1 && x > -1:
		return strconv.FormatFloat(x, 'g', 2, 64)
	case x < 100:
		return strings.TrimSuffix(strconv.FormatFloat(x, 'f', 1, 64), ".0")
	}
	digits := strconv.FormatFloat(x, 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
