// Package config gives the flags of a program values from the environment and
// from a file.
//
// A flag --drain-timeout is also the variable DTASK_DRAIN_TIMEOUT and the key
// drain-timeout of the file that --config names. What is nearer to the person
// wins: flag, then environment, then file, then default.
//
// The package owns the names and the order. What a value means is the flag's own
// business: each is checked by the flag, wherever it comes from. It starts no
// goroutines. All its errors are mistakes of whoever started the program.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"
)

// FileFlag is the name of the flag that names the file.
const FileFlag = "config"

// envPrefix begins the names of all variables.
const envPrefix = "DTASK_"

// maxFile bounds the file, in bytes.
const maxFile = 1 << 20

// AddFlag adds --config to the flags.
func AddFlag(flags *pflag.FlagSet) {
	flags.String(FileFlag, "", "YAML file with settings: the names of the flags without the dashes")
}

// EnvName is the variable that stands for a flag.
func EnvName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Fill gives each flag that was not on the command line its value from the
// environment, else from the file. lookup is os.LookupEnv; an empty variable
// counts as not set. All faults are returned, joined.
func Fill(flags *pflag.FlagSet, lookup func(name string) (string, bool)) error {
	var faults []error
	given := map[string]bool{}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || !settable(f.Name) && f.Name != FileFlag {
			given[f.Name] = f.Changed
			return
		}
		if value, ok := lookup(EnvName(f.Name)); ok && value != "" {
			given[f.Name] = true
			if err := flags.Set(f.Name, value); err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", EnvName(f.Name), err))
			}
		}
	})
	if file := flags.Lookup(FileFlag); file != nil && file.Value.String() != "" {
		faults = append(faults, fillFromFile(flags, file.Value.String(), given))
	}
	return errors.Join(faults...)
}

// settable reports whether a flag may come from elsewhere than the command line.
func settable(name string) bool {
	return name != "help" && name != "version" && name != FileFlag
}

func fillFromFile(flags *pflag.FlagSet, path string, given map[string]bool) error {
	settings, err := readFile(path)
	if err != nil {
		return err
	}
	var faults []error
	for i := 0; settings != nil && i+1 < len(settings.Content); i += 2 {
		key, value := settings.Content[i], settings.Content[i+1]
		at := fmt.Sprintf("%s:%d:%d", path, key.Line, key.Column)
		f := flags.Lookup(key.Value)
		if f == nil || !settable(key.Value) {
			faults = append(faults, fmt.Errorf("%s: there is no setting %q%s", at, key.Value, suggestion(flags, key.Value)))
			continue
		}
		if given[key.Value] {
			continue
		}
		if err := set(flags, f, value); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", at, err))
		}
	}
	return errors.Join(faults...)
}

// readFile returns the file's mapping, or nil if the file is empty.
func readFile(path string) (*yaml.Node, error) {
	file, err := os.Open(path) //nolint:gosec // the person who starts the program names it
	if err != nil {
		return nil, fmt.Errorf("opening the settings: %w", err)
	}
	defer func() { _ = file.Close() }() // read only
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading the settings: %w", err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: a file of settings has at most %d bytes", path, maxFile)
	}
	var document yaml.Node
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := loader.Load(&document); errors.Is(err, io.EOF) {
		return nil, nil //nolint:nilnil // a file without a document sets nothing
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if document.Kind != yaml.DocumentNode || len(document.Content) == 0 {
		return nil, nil //nolint:nilnil // only comments
	}
	settings := document.Content[0]
	if settings.Kind == yaml.ScalarNode && settings.Tag == "!!null" {
		return nil, nil //nolint:nilnil // only comments
	}
	if settings.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d:%d: settings are a mapping, such as slots: 4", path, settings.Line, settings.Column)
	}
	seen := map[string]bool{}
	for i := 0; i < len(settings.Content); i += 2 {
		key := settings.Content[i]
		if seen[key.Value] {
			return nil, fmt.Errorf("%s:%d:%d: %s is set twice", path, key.Line, key.Column, key.Value)
		}
		seen[key.Value] = true
	}
	return settings, nil
}

// set gives a flag a value of the file: a scalar, a list, or a mapping for flags
// of the form name=value.
func set(flags *pflag.FlagSet, f *pflag.Flag, value *yaml.Node) error {
	var values []string
	switch value.Kind {
	case yaml.ScalarNode:
		values = []string{value.Value}
	case yaml.SequenceNode:
		for _, item := range value.Content {
			if item.Kind != yaml.ScalarNode {
				return fmt.Errorf("%s: a list of plain values is wanted", f.Name)
			}
			values = append(values, item.Value)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(value.Content); i += 2 {
			if value.Content[i+1].Kind != yaml.ScalarNode {
				return fmt.Errorf("%s: a mapping to plain values is wanted", f.Name)
			}
			values = append(values, value.Content[i].Value+"="+value.Content[i+1].Value)
		}
	case yaml.DocumentNode, yaml.AliasNode, yaml.StreamNode:
		return fmt.Errorf("%s: a plain value, a list or a mapping is wanted", f.Name)
	}
	if value.Kind != yaml.ScalarNode && !takesSeveral(f) {
		return fmt.Errorf("%s: one plain value is wanted", f.Name)
	}
	for _, v := range values {
		if err := flags.Set(f.Name, v); err != nil {
			return err //nolint:wrapcheck // names the flag
		}
	}
	return nil
}

// takesSeveral reports whether a flag can be repeated.
func takesSeveral(f *pflag.Flag) bool {
	if _, ok := f.Value.(pflag.SliceValue); ok {
		return true
	}
	return strings.HasPrefix(f.Value.Type(), "stringTo")
}

// suggestion names the nearest setting, if one is near.
func suggestion(flags *pflag.FlagSet, wrong string) string {
	best, least := "", 3
	flags.VisitAll(func(f *pflag.Flag) {
		if d := distance(f.Name, wrong); settable(f.Name) && d < least {
			best, least = f.Name, d
		}
	})
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// distance is the number of letters to insert, remove or change.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
