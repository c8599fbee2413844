package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// A flagValue is a flag that is parsed by a function. The function's error says
// what the value must be: flagError puts the flag and the value before it.
type flagValue[T any] struct {
	p     *T
	text  string
	parse func(string) (T, error)
}

func (v *flagValue[T]) String() string { return v.text }
func (v *flagValue[T]) Type() string   { return "value" }

func (v *flagValue[T]) Set(text string) error {
	parsed, err := v.parse(text)
	if err == nil {
		*v.p, v.text = parsed, text
	}
	return err
}

// bind adds a flag with a default as users type it; empty = the zero value.
func bind[T any](fl *pflag.FlagSet, p *T, name, initial, help string, parse func(string) (T, error)) {
	bindP(fl, p, name, "", initial, help, parse)
}

// bindP is bind with a shorthand letter.
func bindP[T any](fl *pflag.FlagSet, p *T, name, shorthand, initial, help string, parse func(string) (T, error)) {
	v := &flagValue[T]{p: p, parse: parse}
	if initial != "" {
		if err := v.Set(initial); err != nil {
			panic(fmt.Sprintf("default of --%s: %v", name, err))
		}
	}
	fl.VarP(v, name, shorthand, help)
}

// maxBurst is how many jobs or tasks a rate allows at once at most.
const maxBurst = 1_000_000

// bindRate adds a flag with a rate.
func bindRate(fl *pflag.FlagSet, p *spec.Rate, name, what string) {
	bind(fl, p, name, "", "maximum `RATE` of "+what+" per second, minute, hour or day, such as 50/s or 1000/h (default: unlimited)", spec.ParseRate)
}

// bindEnum adds a flag with a few values, of which the first is the default.
func bindEnum[T ~string](cmd *cobra.Command, fl *pflag.FlagSet, p *T, name, shorthand, help string, values ...T) {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = string(v)
	}
	list := alternatives(names)
	bindP(fl, p, name, shorthand, names[0], help+": "+list, func(text string) (T, error) {
		for _, v := range values {
			if text == string(v) {
				return v, nil
			}
		}
		return "", fmt.Errorf("must be %s", list)
	})
	_ = cmd.RegisterFlagCompletionFunc(name,
		cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

// integer parses integers of a range.
func integer[T int | uint32 | uint64](least, most int64) func(string) (T, error) {
	return func(text string) (T, error) {
		n, err := strconv.ParseInt(text, 10, 64)
		switch {
		case err != nil:
			return 0, errors.New("must be an integer")
		case n < least && most >= math.MaxInt32: // no limit that users reach
			return 0, fmt.Errorf("must be %d or more", least)
		case n < least || n > most:
			return 0, fmt.Errorf("must be from %d to %d", least, most)
		}
		return T(n), nil
	}
}

// duration parses durations of a range.
func duration(least, most time.Duration) func(string) (time.Duration, error) {
	return func(text string) (time.Duration, error) {
		d, err := spec.ParseDuration(text)
		if err != nil {
			d, err = time.ParseDuration(text)
		}
		switch {
		case err != nil:
			return 0, errors.New("must be a duration such as 30s or 5m")
		case least == time.Nanosecond && d < least:
			return 0, errors.New("must be more than 0")
		case d < least:
			return 0, fmt.Errorf("must be %s or more", least)
		case d > most:
			return 0, fmt.Errorf("must be %s or less", most)
		}
		return d, nil
	}
}

// parsePriority parses the name or the number of a priority.
func parsePriority(text string) (dtaskv1.Priority, error) {
	p, err := spec.ParsePriority(text)
	if err != nil {
		return 0, errors.New("must be low, normal, high or urgent, or 0 to 3")
	}
	return p, nil
}

// timestamp parses a point in time.
func timestamp(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	switch {
	case err != nil:
		return at, errors.New("must be a time such as 2026-05-01T12:00:00Z or a duration such as 2h")
	case at.UnixMilli() <= 0:
		return at, errors.New("must be after 1970")
	}
	return at, nil
}

// flagError rewrites an error of pflag, which contains Go types and names of
// functions.
func flagError(_ *cobra.Command, err error) error {
	if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return fmt.Errorf("missing value for --%s", missing.GetFlag().Name)
	}
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	f, want := invalid.GetFlag(), invalid.Unwrap().Error()
	switch f.Value.Type() {
	case "bool":
		want = "must be true or false"
	case "stringToString":
		want = "must be KEY=VALUE"
	}
	name := "--" + f.Name
	if f.Shorthand != "" { // which of both was written is unknown
		name = "-" + f.Shorthand + ", " + name
	}
	return invalidFlag(name, invalid.GetValue(), want)
}

// invalidFlag is the error of a flag's value. Numbers are not quoted.
func invalidFlag(name, value, want string) error {
	if _, err := strconv.ParseFloat(value, 64); err != nil {
		value = strconv.Quote(value)
	}
	return fmt.Errorf("invalid %s %s: %s", name, value, want)
}

// exclusive is an error if more than one of the named flags is set.
func exclusive(fl *pflag.FlagSet, names ...string) error {
	set := ""
	for _, name := range names {
		switch {
		case !fl.Changed(name):
		case set == "":
			set = name
		default:
			return fmt.Errorf("--%s and --%s are mutually exclusive", set, name)
		}
	}
	return nil
}

// bindLimit adds --limit to a list of things.
func bindLimit(fl *pflag.FlagSet, p *int, things string) {
	bind(fl, p, "limit", "100", "maximum number `N` of "+things+" (0 = unlimited)",
		integer[int](0, math.MaxInt32))
}
