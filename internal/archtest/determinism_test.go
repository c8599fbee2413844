package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// Replicas apply the same log and must reach exactly the same state, on any machine
// and in any version that knows the log's operations. These rules find what may
// differ between two replicas and what no linter checks.
//
// If the order really doesn't matter, a comment on the line or just above it gives
// the reason: // unordered: only counted.

// purity is how much a package may do.
type purity struct {
	pattern string // in the form that the go command accepts
	floats  bool   // floats are allowed
}

// The scheduler decides only on the leader, and the log carries its decision, so
// floats are harmless there. Everything else would make its tests and its simulation
// unrepeatable.
var pure = []purity{
	{pattern: module + "/fsm/...", floats: false},
	{pattern: module + "/scheduler/...", floats: true},
}

// forbiddenImports are packages that depend on the outside world: clocks, randomness,
// files, the network, the process. A name ending in /... also covers all packages
// below it.
var forbiddenImports = []string{
	"crypto/rand", "embed", "io/ioutil", "log/...", "math/rand/...", "net/...",
	"os/...", "plugin", "runtime/...", "syscall", "testing/...",
}

// forbiddenNames are the parts of allowed packages that read a clock, wait, or
// depend on the machine.
var forbiddenNames = map[string]string{
	"time.Now":                "time is an argument",
	"time.Since":              "time is an argument",
	"time.Until":              "time is an argument",
	"time.After":              "nothing waits here",
	"time.AfterFunc":          "nothing waits here",
	"time.NewTimer":           "nothing waits here",
	"time.NewTicker":          "nothing waits here",
	"time.Tick":               "nothing waits here",
	"time.Sleep":              "nothing waits here",
	"time.Local":              "replicas live in different zones",
	"time.LoadLocation":       "reads the machine's files: the leader computes, the log carries the result",
	"hash/maphash.MakeSeed":   "seeds differ between processes",
	"hash/maphash.String":     "seeds differ between processes",
	"hash/maphash.Bytes":      "seeds differ between processes",
	"hash/maphash.Comparable": "seeds differ between processes",
}

func TestReplicatedPackagesAreDeterministic(t *testing.T) {
	t.Parallel()
	for _, rule := range pure {
		t.Run(rule.pattern, func(t *testing.T) {
			t.Parallel()
			for _, p := range typed(t, rule.pattern) {
				for _, found := range inspect(p, rule) {
					t.Error(found)
				}
			}
		})
	}
}

// The checker is tested on a package that breaks each rule once: every line with a
// "want" comment must be found, and no other.
func TestTheDeterminismCheckerFindsPlantedFaults(t *testing.T) {
	t.Parallel()
	const planted = "./testdata/impure"
	var want, got []string
	for _, p := range typed(t, planted) {
		for _, f := range p.Syntax {
			for _, group := range f.Comments {
				for _, c := range group.List {
					if _, text, ok := strings.Cut(c.Text, "want "); ok {
						want = append(want, fmt.Sprintf("%d %s", p.Fset.Position(c.Pos()).Line, text))
					}
				}
			}
		}
		for _, found := range inspect(p, purity{}) {
			got = append(got, fmt.Sprintf("%d %s", found.at.Line, found.kind))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	got = slices.Compact(got)
	if len(want) < 10 {
		t.Fatalf("%s plants %d faults: it was not read whole", planted, len(want))
	}
	if !slices.Equal(got, want) {
		t.Errorf("found faults:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A fault is one place that may differ between replicas.
type fault struct {
	at   token.Position
	kind string // one word, for the checker's own test
	why  string
}

func (f fault) String() string { return fmt.Sprintf("%s: %s", f.at, f.why) }

// inspect finds the faults of one package.
func inspect(p *packages.Package, rule purity) []fault {
	var faults []fault
	for _, f := range p.Syntax {
		i := inspector{p: p, rule: rule, excused: excusedLines(p.Fset, f)}
		for _, imported := range f.Imports {
			path := strings.Trim(imported.Path.Value, `"`)
			if coveredByAny(forbiddenImports, path) {
				i.add(imported, "import", path+" has no place in a deterministic package")
			}
		}
		ast.Inspect(f, i.visit)
		faults = append(faults, i.faults...)
	}
	return faults
}

type inspector struct {
	p       *packages.Package
	rule    purity
	excused map[int]bool // lines with, or just below, an "unordered:" comment
	sorted  []ast.Node   // calls whose result is sorted immediately
	faults  []fault
}

func (i *inspector) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		i.add(n, "go", "no goroutines: who applies first would decide")
	case *ast.SelectStmt:
		if !i.isExcused(n) {
			i.add(n, "select", "select chooses by chance; say // unordered: why if no state depends on it")
		}
	case *ast.RangeStmt:
		if isMap(i.p.TypesInfo.TypeOf(n.X)) && !i.isExcused(n) {
			i.add(n, "map", "the order of a map differs between replicas; sort the keys, or say // unordered: why")
		}
	case *ast.CallExpr:
		i.call(n)
	case *ast.SelectorExpr:
		if why, ok := forbiddenNames[i.qualified(n)]; ok {
			i.add(n, "name", i.qualified(n)+": "+why)
		}
	case *ast.Field:
		if !i.rule.floats && isFloat(i.p.TypesInfo.TypeOf(n.Type)) {
			i.add(n, "float", "no floats in replicated state: machines fuse x*y+z or do not")
		}
	case *ast.BinaryExpr:
		tv := i.p.TypesInfo.Types[n]
		if !i.rule.floats && tv.Value == nil && isFloat(tv.Type) {
			i.add(n, "float", "no float arithmetic: machines fuse x*y+z or do not")
		}
	}
	return true
}

// call checks the iterators of package maps, whose order is random: they may only
// feed a sort.
func (i *inspector) call(call *ast.CallExpr) {
	selector, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok {
		return
	}
	switch i.qualified(selector) {
	case "slices.Sorted", "slices.SortedFunc", "slices.SortedStableFunc":
		i.sorted = append(i.sorted, ast.Unparen(call.Args[0]))
	case "maps.Keys", "maps.Values", "maps.All":
		if !slices.Contains(i.sorted, ast.Node(call)) && !i.isExcused(call) {
			i.add(call, "map", "the order of a map differs between replicas; use slices.Sorted, or say // unordered: why")
		}
	}
}

// qualified returns the import path and name of a selector such as time.Now, and ""
// for a method or a field.
func (i *inspector) qualified(n *ast.SelectorExpr) string {
	ident, ok := n.X.(*ast.Ident)
	if !ok {
		return ""
	}
	imported, ok := i.p.TypesInfo.Uses[ident].(*types.PkgName)
	if !ok {
		return ""
	}
	return imported.Imported().Path() + "." + n.Sel.Name
}

func (i *inspector) add(n ast.Node, kind, why string) {
	i.faults = append(i.faults, fault{at: i.p.Fset.Position(n.Pos()), kind: kind, why: why})
}

func (i *inspector) isExcused(n ast.Node) bool {
	return i.excused[i.p.Fset.Position(n.Pos()).Line]
}

// excusedLines returns the lines with a comment "unordered: why" on them or directly
// above.
func excusedLines(fset *token.FileSet, f *ast.File) map[int]bool {
	lines := map[int]bool{}
	for _, group := range f.Comments {
		if _, why, ok := strings.Cut(group.Text(), "unordered: "); ok && strings.TrimSpace(why) != "" {
			lines[fset.Position(group.Pos()).Line] = true
			lines[fset.Position(group.End()).Line+1] = true
		}
	}
	return lines
}

func isMap(t types.Type) bool {
	if t == nil {
		return false
	}
	_, ok := t.Underlying().(*types.Map)
	return ok
}

// isFloat reports whether a value of the type contains a float directly, in an array,
// or in a slice.
func isFloat(t types.Type) bool {
	if t == nil {
		return false
	}
	switch u := t.Underlying().(type) {
	case *types.Basic:
		return u.Info()&(types.IsFloat|types.IsComplex) != 0
	case *types.Slice:
		return isFloat(u.Elem())
	case *types.Array:
		return isFloat(u.Elem())
	}
	return false
}

// typed loads packages with their types. Dependencies come from compiled export data,
// so that only these packages are parsed.
func typed(t *testing.T, patterns ...string) []*packages.Package {
	t.Helper()
	watchSources(t)
	const mode = packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
		packages.NeedExportFile | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo
	pkgs, err := packages.Load(&packages.Config{Mode: mode, Context: t.Context()}, patterns...)
	if err != nil {
		t.Fatalf("loading %v: %v", patterns, err)
	}
	if len(pkgs) == 0 {
		t.Fatalf("loading %v: no packages", patterns)
	}
	for _, p := range pkgs {
		for _, e := range p.Errors {
			t.Fatalf("loading %s: %v", p.PkgPath, e)
		}
	}
	return pkgs
}
