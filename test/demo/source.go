package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// A file of the source tree.
type file struct {
	path string
	size int64
}

// sources finds the .go files below a directory, in order of their paths. Directories
// at the top that are named in skip are left out.
func sources(root string, skip ...string) ([]file, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("finding the source tree: %w", err)
	}
	var files []file
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && filepath.Dir(path) == root && slices.Contains(skip, entry.Name()) {
			return fs.SkipDir
		}
		if err != nil || !entry.Type().IsRegular() || !strings.HasSuffix(path, ".go") {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		files = append(files, file{path: path, size: info.Size()})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("walking the source tree: %w", err)
	}
	if len(files) == 0 {
		return nil, errors.New("there is no .go file below " + root)
	}
	return files, nil
}

// split deals files out into n groups of about the same size in bytes: the
// largest first, each to the group that has least. Groups without files are left
// out.
func split(files []file, n int) [][]file {
	bySize := slices.SortedStableFunc(slices.Values(files), func(a, b file) int { return cmp.Compare(b.size, a.size) })
	groups, sizes := make([][]file, min(n, len(files))), make([]int64, min(n, len(files)))
	for _, f := range bySize {
		least := 0
		for i := range sizes {
			if sizes[i] < sizes[least] || sizes[i] == sizes[least] && len(groups[i]) < len(groups[least]) {
				least = i
			}
		}
		groups[least] = append(groups[least], f)
		sizes[least] += f.size
	}
	return groups
}
