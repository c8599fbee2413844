// Command vocabulary checks the words of the project: comments, string literals,
// protocol comments and Markdown prose must not use the words and forms listed in
// rules.go. It prints file, line, the words found and what to write instead, and
// exits 1 if it found anything.
//
//	go run ./tools/vocabulary              check every file that git tracks
//	go run ./tools/vocabulary -draw 7      print a sample of texts, drawn with seed 7
//
// The sample is for review by a reader: thirty comment blocks, twenty error messages
// and ten help texts of the product. The same seed and the same tree give the same
// sample.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

func main() {
	draw := flag.Int64("draw", 0, "print a sample drawn with this `SEED` (0 = check instead)")
	flag.Parse()
	if err := run(context.Background(), *draw, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "vocabulary:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, seed int64, paths []string) error {
	files, err := tracked(ctx, paths)
	if err != nil {
		return err
	}
	if seed != 0 {
		return printSample(files, seed)
	}
	return check(files)
}

// check prints what is wrong in the files and returns an error if anything is.
func check(files []string) error {
	found := 0
	for _, path := range files {
		texts, err := read(path)
		if err != nil {
			return err
		}
		for _, t := range texts {
			for _, f := range findings(t) {
				fmt.Printf("%s:%d: %q: %s\n", path, f.line, f.words, f.advice)
				found++
			}
		}
	}
	if found > 0 {
		return fmt.Errorf("%d places to rewrite", found)
	}
	return nil
}

// tracked lists the files that git knows below the paths, all if there are none.
func tracked(ctx context.Context, paths []string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"ls-files", "--cached", "--others", "--exclude-standard", "--"}, paths...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("listing files with git: %w", err)
	}
	var files []string
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	for lines.Scan() {
		path := lines.Text()
		if _, err := os.Stat(path); err == nil && !skipped(path) {
			files = append(files, path)
		}
	}
	return files, lines.Err()
}

// skipped reports whether a file holds no prose of the project: generated code, test
// data, and this command, which has to name the words.
func skipped(path string) bool {
	return strings.HasSuffix(path, ".pb.go") || strings.Contains(path, "testdata/") || strings.HasPrefix(path, "tools/vocabulary/")
}
