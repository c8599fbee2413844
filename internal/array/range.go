package array

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// MaxRanges is the maximum number of ranges of an array.
const MaxRanges = 1000

// RangeError describes an invalid list of ranges.
type RangeError struct{ What, Do string }

// Error returns what is wrong and what to do.
func (e *RangeError) Error() string { return e.What + "; " + e.Do }

const rangeForm = "write it like 0-99, 0-100:5 or 1,5,9-12"

// ParseRanges parses a comma-separated list of A, A-B or A-B:STEP. It returns
// ascending ranges. The error is a [*RangeError].
func ParseRanges(text string) ([]*dtaskv1.ArrayRange, error) {
	pieces := strings.Split(text, ",")
	if len(pieces) > MaxRanges {
		return nil, &RangeError{fmt.Sprintf("has %d ranges", len(pieces)), fmt.Sprintf("write at most %d, or use items", MaxRanges)}
	}
	list := make([]*dtaskv1.ArrayRange, len(pieces))
	for i, piece := range pieces {
		r, err := parseRange(strings.TrimSpace(piece))
		if err != nil {
			return nil, err
		}
		list[i] = r
	}
	slices.SortFunc(list, func(a, b *dtaskv1.ArrayRange) int { return cmp.Compare(a.GetFirst(), b.GetFirst()) })
	for i, r := range list[1:] {
		if before := list[i]; r.GetFirst() <= before.GetLast() {
			return nil, &RangeError{fmt.Sprintf("%s and %s overlap", Format(before), Format(r)), "write each index once, in ranges that are apart"}
		}
	}
	return list, nil
}

func parseRange(text string) (*dtaskv1.ArrayRange, error) {
	span, stepText, stepped := strings.Cut(text, ":")
	firstText, lastText, ranged := strings.Cut(span, "-")
	if strings.HasPrefix(text, "-") {
		return nil, &RangeError{fmt.Sprintf("%s begins with a negative index", quote(text)), "indexes begin at 0"}
	}
	if strings.HasPrefix(stepText, "-") {
		return nil, &RangeError{fmt.Sprintf("%s has a negative step", quote(text)), "write a step of 1 or more; indexes ascend"}
	}
	r := &dtaskv1.ArrayRange{Step: 1}
	var err error
	if r.First, err = number(text, firstText); err != nil {
		return nil, err
	}
	if r.Last = r.GetFirst(); ranged {
		if r.Last, err = number(text, lastText); err != nil {
			return nil, err
		}
	}
	if stepped {
		if r.Step, err = number(text, stepText); err != nil {
			return nil, err
		}
	}
	switch {
	case stepped && !ranged:
		return nil, &RangeError{fmt.Sprintf("%s has a step and no end", quote(text)), rangeForm}
	case r.GetStep() == 0:
		return nil, &RangeError{fmt.Sprintf("%s has the step 0", quote(text)), "write a step of 1 or more"}
	case r.GetLast() < r.GetFirst():
		return nil, &RangeError{fmt.Sprintf("%s is empty: %d is above %d", quote(text), r.GetFirst(), r.GetLast()), "write the lower index first"}
	}
	r.Last = r.GetFirst() + (r.GetLast()-r.GetFirst())/r.GetStep()*r.GetStep()
	return r, nil
}

func number(whole, text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || strconv.FormatUint(n, 10) != text {
		what := fmt.Sprintf("%s is no range of indexes", quote(whole))
		if strings.Trim(text, "0123456789") == "" && text != "" && text[0] != '0' {
			what = fmt.Sprintf("%s has an index above %d", quote(whole), uint32(1<<32-1))
		}
		return 0, &RangeError{what, rangeForm}
	}
	return uint32(n), nil
}

func quote(text string) string {
	const most = 40
	if len(text) > most {
		return strconv.Quote(text[:most]) + "…"
	}
	return strconv.Quote(text)
}

// Format formats a range as ParseRanges reads it.
func Format(r *dtaskv1.ArrayRange) string {
	switch {
	case r.GetFirst() == r.GetLast():
		return strconv.FormatUint(uint64(r.GetFirst()), 10)
	case r.GetStep() == 1:
		return fmt.Sprintf("%d-%d", r.GetFirst(), r.GetLast())
	}
	return fmt.Sprintf("%d-%d:%d", r.GetFirst(), r.GetLast(), r.GetStep())
}
