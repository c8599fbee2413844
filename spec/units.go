package spec

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// ParseDuration parses a duration as written in job files: numbers with the
// units d, h, m, s and ms, longest first: 90s, 1h30m, 2d, 500ms, 1.5h. A bare
// 0 needs no unit. The result is a whole number of milliseconds from 0 to
// [MaxDuration].
func ParseDuration(s string) (time.Duration, error) {
	d, p := duration(s)
	if p.bad() {
		return 0, p
	}
	return d, nil
}

type unit struct {
	name string
	of   int64
}

// Longest first: durations must have this order.
var durationUnits = []unit{{"d", 86_400_000}, {"h", 3_600_000}, {"m", 60_000}, {"s", 1000}, {"ms", 1}}

var sizeUnits = []unit{
	{"B", 1},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
}

func duration(s string) (time.Duration, problem) {
	const form = "write it like 90s, 1h30m, 2d or 500ms"
	if s == "0" {
		return 0, problem{}
	}
	if strings.HasPrefix(s, "-") {
		return 0, problem{fmt.Sprintf("%s is negative", quote(s)), form}
	}
	total, from, rest := int64(0), 0, s
	for rest != "" || s == "" {
		number, tail := digits(rest)
		name := tail[:len(tail)-len(strings.TrimLeft(tail, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZµ"))]
		if number == "" {
			return 0, problem{fmt.Sprintf("invalid duration %s", quote(s)), form}
		}
		if name == "" {
			return 0, problem{fmt.Sprintf("%s has no unit", quote(s)), form}
		}
		i := unitIndex(durationUnits, name)
		if i < 0 {
			return 0, problem{fmt.Sprintf("%s has the unknown unit %s", quote(s), quote(name)), "the units are d, h, m, s and ms"}
		}
		if i < from {
			return 0, problem{fmt.Sprintf("%s must have its units from long to short", quote(s)), form}
		}
		ms, ok := scale(number, durationUnits[i].of)
		if !ok {
			return 0, problem{fmt.Sprintf("%s is not a whole number of milliseconds", quote(s)), form}
		}
		total, from, rest = total+ms, i+1, tail[len(name):]
		if total > MaxDuration.Milliseconds() {
			return 0, problem{fmt.Sprintf("%s is too long", quote(s)), "at most 3650d"}
		}
	}
	return time.Duration(total) * time.Millisecond, problem{}
}

// size parses a size in bytes as written in job files: a number alone, or with
// B, KB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024).
// The result is at most 1024 TiB.
func size(s string) (int64, problem) {
	const form = "write it like 64MiB, 1GB or 512"
	if strings.HasPrefix(s, "-") {
		return 0, problem{fmt.Sprintf("%s is negative", quote(s)), form}
	}
	number, name := digits(s)
	if number == "" {
		return 0, problem{fmt.Sprintf("invalid size %s", quote(s)), form}
	}
	of := int64(1)
	if name != "" {
		i := unitIndex(sizeUnits, name)
		if i < 0 {
			return 0, problem{fmt.Sprintf("%s has the unknown unit %s", quote(s), quote(name)), sizeUnitHint(name)}
		}
		of = sizeUnits[i].of
	}
	n, ok := scale(number, of)
	if !ok {
		return 0, problem{fmt.Sprintf("%s is not a whole number of bytes", quote(s)), form}
	}
	if n > maxAmount {
		return 0, problem{fmt.Sprintf("%s is too large", quote(s)), "at most 1024TiB"}
	}
	return n, problem{}
}

func sizeUnitHint(name string) string {
	for _, u := range sizeUnits {
		if strings.EqualFold(u.name, name) || strings.EqualFold(u.name, name+"B") {
			return "write it as " + u.name
		}
	}
	return "the units are B, KB, MB, GB, TB, KiB, MiB, GiB and TiB"
}

// thousandths parses a decimal number with at most three decimal places.
func thousandths(s string) (int64, problem) {
	if strings.HasPrefix(s, "-") {
		return 0, problem{fmt.Sprintf("%s is negative", quote(s)), "write a number from 0 up"}
	}
	number, rest := digits(s)
	if number == "" || rest != "" {
		return 0, problem{fmt.Sprintf("invalid number %s", quote(s)), "write it like 2 or 0.5"}
	}
	n, ok := scale(number, 1000)
	if !ok {
		return 0, problem{fmt.Sprintf("%s has more than three decimal places", quote(s)), "write it like 2 or 0.5"}
	}
	return n, problem{}
}

func unitIndex(units []unit, name string) int {
	for i, u := range units {
		if u.name == name {
			return i
		}
	}
	return -1
}

// digits splits s after its leading decimal number: digits, and a point only
// between digits.
func digits(s string) (number, rest string) {
	i := run(s)
	if i > 0 && i < len(s) && s[i] == '.' {
		if fraction := run(s[i+1:]); fraction > 0 {
			i += 1 + fraction
		}
	}
	return s[:i], s[i:]
}

// run returns the number of leading digits of s.
func run(s string) int {
	i := 0
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	return i
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// scale returns number × of, and false if the product isn't whole. Numbers
// that exceed any limit return 2⁶¹, which is safe to add to.
func scale(number string, of int64) (n int64, ok bool) {
	const huge = 1 << 61
	if len(number) > 64 {
		return huge, true
	}
	if whole, err := strconv.ParseInt(number, 10, 64); err == nil && whole <= huge/of {
		return whole * of, true
	}
	r, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, false
	}
	r.Mul(r, new(big.Rat).SetInt64(of))
	if r.Cmp(new(big.Rat).SetInt64(huge)) > 0 {
		return huge, true
	}
	return r.Num().Int64(), r.IsInt()
}
