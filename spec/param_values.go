package spec

import (
	"fmt"
	"math/big"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/dtask/dtask/internal/array"
	"github.com/dtask/dtask/internal/nearest"
)

// Values of parameters: how they are parsed, and which of them a job gets.

// parse checks a text against the type of the parameter, and returns the value.
func (p *param) parse(s string) (string, problem) {
	switch p.is {
	case numberParam:
		v, bad := jsonNumber(s)
		if n, _, err := big.ParseFloat(v, 10, ordinalBits, big.ToNearestEven); bad.bad() || err != nil || n.IsInf() {
			return "", problem{"invalid number " + quote(s), "write it like 2 or 0.5"}
		}
		return v, problem{}
	case booleanParam:
		if s != "true" && s != "false" {
			return "", problem{"invalid boolean " + quote(s), "write true or false"}
		}
	case durationParam:
		if _, bad := duration(s); bad.bad() {
			return "", bad
		}
	case textParam:
	}
	return s, paramValueProblem(s)
}

// problem checks a parsed value against the rules of the parameter.
func (p *param) problem(v string) problem {
	if len(p.enum) > 0 && !slices.Contains(p.enum, v) {
		return problem{"unknown value " + quote(v), didYouMean(v, p.enum)}
	}
	if p.pattern != nil && !p.pattern.MatchString(v) {
		return problem{fmt.Sprintf("%s does not match the pattern", quote(v)), "write a value that matches " + p.match.Value + " as a whole"}
	}
	if p.min.value == nil && p.max.value == nil {
		return problem{}
	}
	n := p.ordinal(v)
	if p.min.value != nil && n.Cmp(p.min.value) < 0 || p.max.value != nil && n.Cmp(p.max.value) > 0 {
		return problem{quote(v) + " is out of range", "write " + p.limits()}
	}
	return problem{}
}

// limits describes the bounds.
func (p *param) limits() string {
	switch {
	case p.min.value == nil:
		return "at most " + p.max.text
	case p.max.value == nil:
		return "at least " + p.min.text
	}
	return "a value from " + p.min.text + " to " + p.max.text
}

// ordinalBits is the precision of comparisons: 77 decimal digits, more than users write.
const ordinalBits = 256

// ordinal returns a parsed number or duration for comparisons.
func (p *param) ordinal(v string) *big.Float {
	if p.is == durationParam {
		d, _ := duration(v) // parsed before
		return new(big.Float).SetInt64(int64(d))
	}
	n, _, _ := big.ParseFloat(v, 10, ordinalBits, big.ToNearestEven) // parsed before
	return n
}

// setParams gives each parameter its value: that of the options, or the default.
func (r *reader) setParams(job, list *yaml.Node, declared []*param) {
	values := make(map[string]string, len(declared))
	names := make([]string, 0, len(declared))
	for _, p := range declared {
		names = append(names, p.name)
		r.enter(p.name)
		if v, ok := r.valueOf(p); ok {
			values[p.name] = v
		}
		r.leave()
	}
	for _, name := range namesOf(r.opt.Params) {
		if slices.Contains(names, name) {
			continue
		}
		at, do := job, "declare it: "+paramForm
		if list != nil {
			at, do = list, "the parameters are "+strings.Join(names, ", ")
			if n := nearest.Name(name, slices.Values(names)); n != "" {
				do = fmt.Sprintf("did you mean %q?", n)
			}
		}
		r.fault(at, "unknown parameter "+quote(name), do)
	}
	if len(values) == 0 {
		return
	}
	r.holds(list, paramsProblem(values))
	r.values = values
}

func (r *reader) valueOf(p *param) (string, bool) {
	s, set := r.opt.Params[p.name]
	if set {
		v, bad := p.parse(s)
		return v, r.holds(p.at, bad) && r.holds(p.at, p.problem(v))
	}
	if p.initial != nil {
		v, _ := p.parse(p.initial.Value) // without faults, or this is not called
		if p.is == booleanParam {
			v = strings.ToLower(p.initial.Value)
		}
		return v, true
	}
	do := fmt.Sprintf("set it with --set %s=VALUE", p.name)
	if p.description != "" {
		do += ": " + p.description
	}
	r.fault(p.at, "has no value", do)
	return "", false
}

// paramNameProblem checks the name of a parameter.
func paramNameProblem(s string) problem {
	const do = "use 1–63 letters, digits, - and _"
	if p := lengthProblem(s, MaxNameLength, do); p.bad() {
		return p
	}
	for _, c := range s {
		if !isWordRune(c) && c != '-' {
			return problem{fmt.Sprintf("%s contains the character %q", quote(s), c), do}
		}
	}
	return problem{}
}

// paramValueProblem checks the value of a parameter. A value can't have expressions:
// they would be replaced later in some places, and not in others.
func paramValueProblem(s string) problem {
	if len(s) > MaxParamBytes {
		return problem{"has " + bytesText(len(s)), fmt.Sprintf("at most %s; put it into a file and name that", bytesText(MaxParamBytes))}
	}
	if array.Opens(s) {
		return problem{quote(s) + " has an expression, which is not possible here", "write the expression where the parameter is inserted"}
	}
	return textProblem(s)
}

func descriptionProblem(s string) problem {
	if len(s) > MaxParamBytes {
		return problem{"has " + bytesText(len(s)), fmt.Sprintf("at most %s", bytesText(MaxParamBytes))}
	}
	return printableProblem(s)
}

// paramsProblem checks the parameters of a job.
func paramsProblem(values map[string]string) problem {
	if len(values) > MaxParams {
		return problem{fmt.Sprintf("has %d entries", len(values)), fmt.Sprintf("at most %d", MaxParams)}
	}
	size := 0
	for _, name := range namesOf(values) {
		if p := paramNameProblem(name); p.bad() {
			return p
		}
		if p := paramValueProblem(values[name]); p.bad() {
			return problem{name + " " + p.what, p.do}
		}
		size += len(name) + len(values[name])
	}
	if size > MaxParamsBytes {
		return problem{"has " + bytesText(size), fmt.Sprintf("at most %s; put large values into files", bytesText(MaxParamsBytes))}
	}
	return problem{}
}

// ParseParams parses values of parameters for [Options.Params]: a mapping from names to
// texts, numbers and booleans, in YAML or JSON. The path is only used in messages. The
// error is [Faults].
func ParseParams(path string, text []byte) (map[string]string, error) {
	r := &reader{collector: collector{file: path}}
	root := r.load(text)
	if root == nil || !r.survey(root) {
		return nil, r.err()
	}
	values := make(map[string]string)
	for _, e := range r.entries(root, "day: monday") {
		r.enter(e.key)
		switch kind(e.value) {
		case "text", "a number", "true or false":
			values[e.key] = e.value.Value
		default:
			r.fault(e.value, "must be text, a number, true or false, not "+kind(e.value), "write one value for each parameter")
		}
		r.leave()
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	return values, nil
}
