package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
)

// Sizes of a sample.
const (
	sampleComments = 30
	sampleErrors   = 20
	sampleHelp     = 10
)

// trim cuts what a pattern has matched beyond the words.
func trim(s string) string { return strings.Trim(s, " \t.,;:!?\"'()[]") }

// A corpus is all texts that a sample is drawn from, each with its place.
type corpus struct{ comments, errors, help []string }

func printSample(files []string, seed int64) error {
	var c corpus
	for _, path := range files {
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "test/") {
			continue
		}
		if err := c.read(path); err != nil {
			return err
		}
	}
	random := rand.New(rand.NewPCG(uint64(seed), 0)) //nolint:gosec // a sample that anyone can repeat
	for _, part := range []struct {
		title string
		list  []string
		n     int
	}{{"comment blocks", c.comments, sampleComments}, {"error messages", c.errors, sampleErrors}, {"help texts", c.help, sampleHelp}} {
		fmt.Printf("== %d of %d %s, seed %d\n\n", min(part.n, len(part.list)), len(part.list), part.title, seed)
		for _, i := range random.Perm(len(part.list))[:min(part.n, len(part.list))] {
			fmt.Println(part.list[i])
			fmt.Println()
		}
	}
	return nil
}

// errorCalls matches functions whose first string is an error message.
var errorCalls = regexp.MustCompile(`(?i)^(?:errors\.New|fmt\.Errorf|status\.Errorf?|.*\b(?:invalid|notFound|conflict|refused?|unknown|malformed|usagef?|faultf?|problem|fail))$`)

// flagCalls matches methods of a flag set, of which the last string is a help text.
var flagCalls = regexp.MustCompile(`^(?:String|Bool|Int|Int64|Uint|Uint32|Uint64|Float64|Duration|StringSlice|StringArray|StringToString)(?:Var)?P?$|^VarP?F?$`)

func (c *corpus) read(path string) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	at := func(p token.Pos) string { return fmt.Sprintf("%s:%d: ", path, files.Position(p).Line) }
	for _, g := range file.Comments {
		if s := strings.TrimSpace(g.Text()); strings.Count(s, " ") >= 6 {
			c.comments = append(c.comments, at(g.Pos())+"\n    "+strings.ReplaceAll(s, "\n", "\n    "))
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			name := callee(n)
			if s, ok := firstString(n.Args); ok && errorCalls.MatchString(name) && strings.Contains(s, " ") {
				c.errors = append(c.errors, at(n.Pos())+s)
			}
			_, method, _ := strings.Cut(name, ".")
			if s, ok := lastString(n.Args); ok && flagCalls.MatchString(method) && strings.Contains(s, " ") {
				c.help = append(c.help, at(n.Pos())+s)
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && (key.Name == "Short" || key.Name == "Long") {
				if s, ok := stringOf(n.Value); ok {
					c.help = append(c.help, at(n.Pos())+s)
				}
			}
		}
		return true
	})
	return nil
}

func callee(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			return x.Name + "." + f.Sel.Name
		}
		return "." + f.Sel.Name
	}
	return ""
}

func firstString(args []ast.Expr) (string, bool) {
	for _, a := range args {
		if s, ok := stringOf(a); ok {
			return s, true
		}
	}
	return "", false
}

func lastString(args []ast.Expr) (string, bool) {
	if len(args) == 0 {
		return "", false
	}
	return stringOf(args[len(args)-1])
}

// stringOf returns the value of a constant string, also of a concatenation.
func stringOf(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, e.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		x, okX := stringOf(e.X)
		y, okY := stringOf(e.Y)
		return x + y, okX && okY
	}
	return "", false
}
