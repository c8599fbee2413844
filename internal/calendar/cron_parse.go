package calendar

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxExpression is the largest length of a cron expression, in bytes.
const maxExpression = 1024

// A field describes one field of a cron expression.
type field struct {
	name      string
	low, high int
	names     []string // of the values from low on
}

var (
	monthNames   = []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
	weekdayNames = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

	// cronFields are the fields of a cron expression with seconds.
	cronFields = []field{
		{name: "second", high: 59},
		{name: "minute", high: 59},
		{name: "hour", high: 23},
		{name: "day of month", low: 1, high: 31},
		{name: "month", low: 1, high: 12, names: monthNames},
		{name: "day of week", high: 7, names: weekdayNames}, // 0 and 7 are Sunday
	}
)

// shorthands are expressions with a name.
var shorthands = map[string]string{
	"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
	"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}

const cronForm = `write five fields, such as "30 2 * * 1-5": minute, hour, day of month, month, day of week`

// A word is a part of an expression.
type word struct {
	text string
	at   int // offset in the expression, in characters
}

// cut cuts a word at a separator into parts.
func (w word) cut(separator string) []word {
	var parts []word
	at := w.at
	for part := range strings.SplitSeq(w.text, separator) {
		parts = append(parts, word{part, at})
		at += utf8.RuneCountInString(part) + len(separator)
	}
	return parts
}

func (w word) fault(f field, what, do string) error {
	return &Error{Offset: w.at, What: f.name + ": " + what, Do: do}
}

// ParseCron parses an expression with five fields (minute, hour, day of month, month, day
// of week), with six (second first), or a name such as @daily. Names of months and days
// are not case-sensitive. The error is [*Error] with the position.
func ParseCron(text string) (*Expression, error) {
	if len(text) > maxExpression {
		return nil, &Error{What: fmt.Sprintf("has %d bytes", len(text)), Do: fmt.Sprintf("at most %d", maxExpression)}
	}
	words := fieldsOf(text)
	if len(words) == 0 {
		return nil, &Error{What: "is empty", Do: cronForm}
	}
	if strings.HasPrefix(words[0].text, "@") {
		return named(text, words)
	}
	if before, _, zoned := strings.Cut(words[0].text, "="); zoned && strings.HasSuffix(strings.ToUpper(before), "TZ") {
		return nil, &Error{Offset: words[0].at, What: "has a time zone", Do: "write it as timezone: beside cron"}
	}
	if len(words) != 5 && len(words) != 6 {
		return nil, &Error{Offset: words[len(words)-1].at, What: fmt.Sprintf("has %d fields", len(words)), Do: cronForm + "; with a sixth, the first is the second"}
	}
	e := &Expression{seconds: 1, text: text}
	fields, sets := cronFields, []*uint64{&e.seconds, &e.minutes, &e.hours, &e.days, &e.months, &e.weekdays}
	if len(words) == 5 {
		fields, sets = fields[1:], sets[1:]
	}
	restricted := 0
	for i, w := range words {
		set, form, err := parseField(fields[i], w)
		if err != nil {
			return nil, err
		}
		*sets[i] = set
		switch fields[i].name {
		case "minute", "hour":
			e.interval = e.interval || form != listed
		case "day of month", "day of week":
			if form != anything {
				restricted++
			}
		}
	}
	e.weekdays = e.weekdays&127 | e.weekdays>>7
	e.eitherDay = restricted == 2
	if err := e.possible(words[len(words)-3]); err != nil {
		return nil, err
	}
	return e, nil
}

// fieldsOf splits an expression at spaces and tabs.
func fieldsOf(text string) []word {
	var words []word
	for _, w := range (word{text: strings.NewReplacer("\t", " ", "\n", " ", "\r", " ").Replace(text)}).cut(" ") {
		if w.text != "" {
			words = append(words, w)
		}
	}
	return words
}

// named parses an expression that has a name.
func named(text string, words []word) (*Expression, error) {
	w := words[0]
	name := strings.ToLower(w.text)
	form, known := shorthands[name]
	switch {
	case known && len(words) == 1:
		e, err := ParseCron(form)
		if err == nil {
			e.text = text
		}
		return e, err
	case known:
		return nil, &Error{Offset: words[1].at, What: "has a word after " + name, Do: "write nothing after it"}
	case name == "@every":
		return nil, &Error{Offset: w.at, What: "@every is not a cron expression", Do: "write every: " + distanceIn(words) + " instead of cron"}
	case name == "@reboot":
		return nil, &Error{Offset: w.at, What: "@reboot is not supported", Do: "a schedule fires at times only"}
	}
	return nil, &Error{Offset: w.at, What: fmt.Sprintf("unknown name %q", clip(w.text)), Do: "use @hourly, @daily, @midnight, @weekly, @monthly or @yearly"}
}

// distanceIn returns the duration in the words of an @every, or an example if it has none.
func distanceIn(words []word) string {
	if len(words) == 2 {
		if d, err := time.ParseDuration(words[1].text); err == nil && d >= time.Second && d%time.Second == 0 {
			return words[1].text
		}
	}
	return "10m"
}

// possible reports an expression that never fires: none of its months has its days.
func (e *Expression) possible(days word) error {
	if e.eitherDay || e.weekdays != 127 {
		return nil // each weekday is in each month, and each combination with a date occurs
	}
	longest, first := 0, from(e.days, 1)
	for month := 1; month <= 12; month++ {
		if has(e.months, month) {
			longest = max(longest, daysIn(2000, time.Month(month))) // a leap year
		}
	}
	if first <= longest {
		return nil
	}
	return &Error{Offset: days.at, What: fmt.Sprintf("never fires: no month that matches has a day %d", first), Do: fmt.Sprintf("its months have at most %d days", longest)}
}

// A form is how a field is written, for the rules that depend on it.
type form int

const (
	listed   form = iota + 1 // values only
	patterns                 // a range or a step among others
	anything                 // an asterisk among others
)

// parseField parses a field: a list of *, values and ranges, each maybe with a step.
func parseField(f field, w word) (set uint64, is form, err error) {
	is = listed
	for _, item := range w.cut(",") {
		low, high, step, written, err := parseItem(f, item)
		if err != nil {
			return 0, 0, err
		}
		is = max(is, written)
		for n := low; n <= high; n += step {
			set |= 1 << uint(n) //nolint:gosec // 0 to 59
		}
	}
	return set, is, nil
}

// parseItem parses *, a value or a range, maybe with a step.
func parseItem(f field, w word) (low, high, step int, is form, err error) {
	parts := w.cut("/")
	if len(parts) > 2 {
		return 0, 0, 0, 0, parts[2].fault(f, fmt.Sprintf("%q has two steps", clip(w.text)), "write one")
	}
	step = 1
	if parts[0].text == "*" {
		low, high, is = f.low, f.high, anything
		if f.names != nil && f.low == 0 {
			high = 6 // Sunday once
		}
	} else if low, high, is, err = parseRange(f, parts[0]); err != nil {
		return 0, 0, 0, 0, err
	}
	if len(parts) == 1 {
		return low, high, step, is, nil
	}
	if step, err = parseStep(f, parts[1]); err != nil {
		return 0, 0, 0, 0, err
	}
	if is == listed {
		high = f.high // 5/15 is 5-59/15
	}
	if step > high-low && step > 1 {
		return 0, 0, 0, 0, parts[1].fault(f, fmt.Sprintf("step %d is longer than the range %d-%d", step, low, high), f.stepAdvice(step, low))
	}
	if step > 1 || is != anything {
		is = patterns
	}
	return low, high, step, is, nil
}

// stepAdvice tells what to write instead of a step that begins again with each hour, day
// or month.
func (f field) stepAdvice(step, low int) string {
	if f.name == "minute" || f.name == "hour" {
		return fmt.Sprintf("write %d for once, or every: %d%c for equal distances", low, step, f.name[0])
	}
	return fmt.Sprintf("write %d", low)
}

// parseRange parses a value or a range.
func parseRange(f field, w word) (low, high int, is form, err error) {
	ends := w.cut("-")
	if len(ends) > 2 {
		return 0, 0, 0, w.fault(f, fmt.Sprintf("invalid range %q", clip(w.text)), "write it like 1-5")
	}
	if low, err = parseValue(f, ends[0]); err != nil || len(ends) == 1 {
		return low, low, listed, err
	}
	if high, err = parseValue(f, ends[1]); err != nil {
		return 0, 0, 0, err
	}
	if high == 0 && low > 0 && f.high == 7 && strings.EqualFold(ends[1].text, "sun") {
		high = 7 // FRI-SUN
	}
	if high < low {
		return 0, 0, 0, w.fault(f, fmt.Sprintf("range %q ends before it begins", clip(w.text)), fmt.Sprintf("write %d-%d,%d-%d", low, f.high, f.low, high))
	}
	return low, high, patterns, nil
}

// parseValue parses a number or a name.
func parseValue(f field, w word) (int, error) {
	if i := slices.Index(f.names, strings.ToLower(w.text)); i >= 0 {
		return f.low + i, nil
	}
	n, err := strconv.Atoi(w.text)
	switch {
	case w.text == "":
		return 0, w.fault(f, "a value is missing", f.advice())
	case strings.Trim(w.text, "0123456789") != "":
		return 0, w.fault(f, fmt.Sprintf("invalid value %q", clip(w.text)), f.unsupported(w.text))
	case err != nil || n < f.low || n > f.high:
		return 0, w.fault(f, clip(w.text)+" is out of range", f.advice())
	}
	return n, nil
}

// parseStep parses a step.
func parseStep(f field, w word) (int, error) {
	n, err := strconv.Atoi(w.text)
	if strings.Trim(w.text, "0123456789") != "" || w.text == "" {
		return 0, w.fault(f, fmt.Sprintf("invalid step %q", clip(w.text)), "write it like */15")
	}
	if err != nil {
		n = math.MaxInt32
	}
	if n == 0 {
		return 0, w.fault(f, "step 0", "write a step from 1 up")
	}
	return n, nil
}

// advice tells what a field may have.
func (f field) advice() string {
	text := fmt.Sprintf("write %d to %d", f.low, f.high)
	if f.names != nil {
		text += fmt.Sprintf(", or %s to %s", strings.ToUpper(f.names[0]), strings.ToUpper(f.names[len(f.names)-1]))
	}
	return text
}

// unsupported tells what to write instead of the extensions of other systems.
func (f field) unsupported(text string) string {
	day := f.name == "day of month" || f.name == "day of week"
	switch upper := strings.ToUpper(text); {
	case upper == "?":
		return "write *"
	case day && (strings.ContainsAny(upper, "#W") || strings.Contains(upper, "L")):
		return "L, W and # are not supported; " + f.advice()
	case strings.HasPrefix(upper, "H") || strings.Contains(upper, "~"):
		return "H and ~ are not supported; write a value, and jitter: 5m beside cron"
	case strings.HasPrefix(text, "*"):
		return "write a step like */15"
	}
	return f.advice()
}

// clip shortens what a message repeats.
func clip(s string) string {
	const most = 40
	if utf8.RuneCountInString(s) > most {
		return string([]rune(s)[:most]) + "…"
	}
	return s
}
