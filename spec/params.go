package spec

import (
	"fmt"
	"math/big"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v4"
)

// Parameters of a job file: their declarations under job.params, and their values.

type paramType int

const (
	textParam paramType = iota + 1
	numberParam
	booleanParam
	durationParam
)

var paramTypes = []keyword[paramType]{
	{"text", textParam}, {"number", numberParam}, {"boolean", booleanParam}, {"duration", durationParam},
}

// param is the declaration of a parameter.
type param struct {
	name        string
	at          *yaml.Node
	is          paramType
	description string
	required    bool
	pattern     *regexp.Regexp
	enum        []string
	// min and max are bounds of a number, or of a duration in milliseconds, as written
	// and as compared.
	min, max bound
	// Fields that are read when the type is known.
	initial, choices, low, high, match *yaml.Node
}

// bound is a limit of a parameter. The zero value is unlimited.
type bound struct {
	text  string
	value *big.Float
}

const paramForm = "params: [{name: day, default: monday}]"

var paramFields = fields[*param]{
	"name": func(*reader, *param, entry) {}, // read first, since faults of the other fields name it
	"type": func(r *reader, p *param, e entry) {
		if is, ok := readKeyword(r, e.value, paramTypes); ok {
			p.is = is
		}
	},
	"description": func(r *reader, p *param, e entry) { p.description, _ = r.checked(e.value, descriptionProblem) },
	"required":    func(r *reader, p *param, e entry) { p.required, _ = r.truth(e.value) },
	"default":     func(_ *reader, p *param, e entry) { p.initial = e.value },
	"enum":        func(_ *reader, p *param, e entry) { p.choices = e.value },
	"pattern":     func(_ *reader, p *param, e entry) { p.match = e.value },
	"min":         func(_ *reader, p *param, e entry) { p.low = e.value },
	"max":         func(_ *reader, p *param, e entry) { p.high = e.value },
}

// params reads the declarations of a file and its values, and inserts the values into
// the tree. It returns false if it found a fault: without the values, the rest of the
// file can't be checked.
func (r *reader) params(root *yaml.Node) bool {
	before := r.total
	r.enter("job")
	job, list := root, (*yaml.Node)(nil)
	for _, e := range r.entriesOf(root) {
		if e.key != "job" {
			continue
		}
		job = e.value
		for _, e := range r.entriesOf(job) {
			if e.key == "params" {
				list = e.value
			}
		}
	}
	r.enter("params")
	var declared []*param
	if list != nil {
		declared = r.readParams(list)
	}
	if r.total == before {
		r.setParams(job, list, declared)
	}
	r.leave()
	r.leave()
	if list != nil && declared == nil {
		return r.total == before // each use would be reported as unknown
	}
	return r.insertParams(root, list, declared) && r.total == before
}

// readParams reads the list of declarations.
func (r *reader) readParams(list *yaml.Node) []*param {
	nodes, ok := r.items(list, paramForm)
	if !ok {
		return nil
	}
	if len(nodes) > MaxParams {
		r.fault(list, fmt.Sprintf("lists %s parameters", count(len(nodes))), fmt.Sprintf("at most %d", MaxParams))
		return nil
	}
	declared := make([]*param, 0, len(nodes))
	for i, n := range nodes {
		r.enterItem(i)
		p := r.readParam(deref(n))
		r.leave()
		if p == nil {
			continue
		}
		if same := slices.IndexFunc(declared, func(q *param) bool { return q.name == p.name }); same >= 0 {
			r.fault(p.at, "duplicate parameter "+quote(p.name), fmt.Sprintf("remove it, or the one on line %d", declared[same].at.Line))
			continue
		}
		declared = append(declared, p)
	}
	return declared
}

// readParam reads one declaration; nil if it has no valid name.
func (r *reader) readParam(n *yaml.Node) *param {
	es := r.entries(n, "{name: day, default: monday}")
	if es == nil {
		return nil
	}
	p := &param{at: n, is: textParam}
	for _, e := range es {
		if e.key == "name" {
			r.enter("name")
			p.name, _ = r.checked(e.value, paramNameProblem)
			r.leave()
		}
	}
	if !has(es, "name") {
		r.fault(n, "name is missing", "write name: with 1–63 letters, digits, - and _")
	}
	if p.name != "" { // the following faults name it, not its number
		r.path[len(r.path)-1] = step{name: p.name}
	}
	before := r.total
	meant := map[string]bool{}
	paramFields.read(r, p, es, func(e entry) { meant[r.unknown(e, paramFields.names, "")] = true })
	if r.total == before {
		r.paramRules(p)
	}
	switch {
	case p.required && p.initial != nil:
		r.fault(p.initial, "is required and has a default", "leave out required or default")
	case !p.required && p.initial == nil && !meant["default"] && !meant["required"]:
		r.fault(n, "has neither a default nor required: true", "write one of them")
	}
	if p.name == "" {
		return nil
	}
	return p
}

// paramRules reads the fields that depend on the type.
func (r *reader) paramRules(p *param) {
	ordered := p.is == numberParam || p.is == durationParam
	p.min, p.max = r.bound(p, "min", p.low, ordered), r.bound(p, "max", p.high, ordered)
	if p.min.value != nil && p.max.value != nil && p.min.value.Cmp(p.max.value) > 0 {
		r.fault(p.high, "max is below min", "exchange them")
	}
	if p.match != nil {
		r.enter("pattern")
		if p.is != textParam {
			r.fault(p.match, "is for parameters of the type text", "leave it out")
		} else if s, ok := r.text(p.match); ok {
			pattern, err := regexp.Compile(`\A(?:` + s + `)\z`)
			if err != nil {
				r.fault(p.match, "invalid regular expression "+quote(s), "write one in the syntax of RE2, such as [a-z]+")
			}
			p.pattern = pattern
		}
		r.leave()
	}
	if p.choices != nil {
		r.enter("enum")
		r.choices(p)
		r.leave()
	}
	if p.initial != nil {
		r.enter("default")
		if v, ok := r.paramValue(p, p.initial); ok {
			r.holds(p.initial, p.problem(v))
		}
		r.leave()
	}
}

// choices reads the values that a parameter may have.
func (r *reader) choices(p *param) {
	if p.is == booleanParam {
		r.fault(p.choices, "is not for parameters of the type boolean", "leave it out")
		return
	}
	nodes, ok := r.items(p.choices, "enum: [dev, prod]")
	if ok && len(nodes) == 0 {
		r.fault(p.choices, "is empty", "list at least one value")
	}
	var list []string
	for i, n := range nodes {
		r.enterItem(i)
		n = deref(n)
		if v, ok := r.paramValue(p, n); ok && r.holds(n, p.problem(v)) {
			if slices.Contains(list, v) {
				r.fault(n, "duplicate "+quote(v), "remove one of them")
			}
			list = append(list, v)
		}
		r.leave()
	}
	p.enum = list
}

// bound reads min or max.
func (r *reader) bound(p *param, field string, n *yaml.Node, ordered bool) bound {
	if n == nil {
		return bound{}
	}
	r.enter(field)
	defer r.leave()
	if !ordered {
		r.fault(n, "is for parameters of the types number and duration", "leave it out")
		return bound{}
	}
	v, ok := r.paramValue(p, n)
	if !ok {
		return bound{}
	}
	return bound{text: v, value: p.ordinal(v)}
}

// paramValue reads a value that is written as the type of the parameter requires.
func (r *reader) paramValue(p *param, n *yaml.Node) (string, bool) {
	switch p.is {
	case numberParam:
		if n.Kind != yaml.ScalarNode || kind(n) != "a number" {
			r.fault(n, "must be a number, not "+kind(n), "write it like 2 or 0.5, or the type of the parameter as type: text")
			return "", false
		}
	case booleanParam:
		v, ok := r.truth(n)
		return fmt.Sprint(v), ok
	case durationParam:
		if _, ok := r.duration(n, true); !ok {
			return "", false
		}
	case textParam:
		if n.Kind == yaml.ScalarNode && (kind(n) == "a number" || kind(n) == "true or false") {
			named := map[string]string{"a number": "number", "true or false": "boolean"}[kind(n)]
			r.fault(n, "must be text, not "+kind(n), "quote it, or declare the parameter with type: "+named)
			return "", false
		}
		if _, ok := r.text(n); !ok {
			return "", false
		}
	}
	v, bad := p.parse(n.Value)
	return v, r.holds(n, bad)
}
