package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// sitesOf returns the text of a file with a call before each statement, and the lines that
// have such calls. All statements of a line have the same site: first for the first line
// of the result, and so on. Lines keep their numbers. The text is nil if the file gets no
// call, as generated code.
func sitesOf(name string, src []byte, sleeper string, first int) (text []byte, lines []int, err error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	if ast.IsGenerated(file) {
		return nil, nil, nil
	}
	starts := statements(file)
	if len(starts) == 0 {
		return nil, nil, nil
	}
	var out bytes.Buffer
	end := fset.PositionFor(file.Name.End(), false).Offset
	out.Write(src[:end])
	fmt.Fprintf(&out, "; import %s %q", alias, sleeper)
	for _, pos := range starts {
		p := fset.PositionFor(pos, false)
		if len(lines) == 0 || lines[len(lines)-1] != p.Line {
			lines = append(lines, p.Line)
		}
		out.Write(src[end:p.Offset])
		fmt.Fprintf(&out, "%s.At(%d); ", alias, first+len(lines)-1)
		end = p.Offset
	}
	out.Write(src[end:])
	return out.Bytes(), lines, nil
}

// alias is the name by which files import package sleep. It must be unused there.
const alias = "jitterSleep"

// statements returns where the statements of a file begin, in their order. A statement
// with a label begins with the label: a call between the two would take the label from the
// loop that a break or continue names.
func statements(file *ast.File) []token.Pos {
	var starts []token.Pos
	add := func(list []ast.Stmt) {
		for _, s := range list {
			switch s.(type) {
			case *ast.CaseClause, *ast.CommClause: // The body of a switch consists of these.
			case *ast.EmptyStmt:
			default:
				starts = append(starts, s.Pos())
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			return !isExempt(n)
		case *ast.BlockStmt:
			add(n.List)
		case *ast.CaseClause:
			add(n.Body)
		case *ast.CommClause:
			add(n.Body)
		}
		return true
	})
	slices.Sort(starts)
	return starts
}

// isExempt reports whether a function gets no calls: those that run before all tests, and
// those that the compiler treats specially, such as with go:nosplit.
func isExempt(f *ast.FuncDecl) bool {
	if f.Recv == nil && (f.Name.Name == "init" || f.Name.Name == "TestMain") {
		return true
	}
	return f.Doc != nil && slices.ContainsFunc(f.Doc.List, func(c *ast.Comment) bool {
		return strings.HasPrefix(c.Text, "//go:")
	})
}
