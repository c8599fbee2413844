// Package config sets the flags of a program from environment variables and from a
// file.
//
// The flag --drain-timeout is also the variable DTASK_DRAIN_TIMEOUT and the key
// drain-timeout of the file in --config. The order of precedence is flag, environment,
// file, default.
//
// The package owns the names, the order, and the form of errors about values. Each
// flag checks its own value, from any source. The package starts no goroutines. All its
// errors are usage errors.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"
)

// FileFlag is the name of the flag with the path of the file.
const FileFlag = "config"

// envPrefix starts the names of all variables.
const envPrefix = "DTASK_"

// maxFile bounds the file, in bytes.
const maxFile = 1 << 20

// AddFlag adds --config to the flags.
func AddFlag(flags *pflag.FlagSet) {
	flags.String(FileFlag, "", "YAML file with settings, by flag name without the dashes")
}

// EnvName returns the environment variable of a flag.
func EnvName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Fill sets each flag that is not on the command line from the environment, else from
// the file. lookup is os.LookupEnv; an empty variable counts as unset. It returns all
// errors, joined.
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
				faults = append(faults, invalid(EnvName(f.Name), f, value))
			}
		}
	})
	if file := flags.Lookup(FileFlag); file != nil && file.Value.String() != "" {
		faults = append(faults, fillFromFile(flags, file.Value.String(), given))
	}
	return errors.Join(faults...)
}

// Values returns the names and values of all flags, in the order of their names, for
// structured logs. Of a URL, which may contain a secret, only scheme and host are left.
// Lists and maps are as the flags print them.
func Values(flags *pflag.FlagSet) []any {
	return values(flags, func(*pflag.Flag) bool { return true })
}

// ChangedValues is Values of the flags that differ from their defaults.
func ChangedValues(flags *pflag.FlagSet) []any {
	return values(flags, func(f *pflag.Flag) bool { return f.Value.String() != f.DefValue })
}

// Redacted is Values by name, for debug bundles.
func Redacted(flags *pflag.FlagSet) map[string]string {
	table := make(map[string]string)
	flags.VisitAll(func(f *pflag.Flag) {
		if settable(f.Name) || f.Name == FileFlag {
			table[f.Name] = withoutSecret(f.Value.String())
		}
	})
	return table
}

func values(flags *pflag.FlagSet, wanted func(*pflag.Flag) bool) []any {
	var list []any
	flags.VisitAll(func(f *pflag.Flag) {
		if (settable(f.Name) || f.Name == FileFlag) && wanted(f) {
			list = append(list, f.Name, withoutSecret(f.Value.String()))
		}
	})
	return list
}

func withoutSecret(value string) string {
	if u, err := url.Parse(value); err == nil && u.Scheme != "" && u.Host != "" {
		return u.Scheme + "://" + u.Host
	}
	return value
}

// settable reports whether a flag may be set outside of the command line.
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
			faults = append(faults, fmt.Errorf("%s: unknown setting %q%s", at, key.Value, suggestion(flags, key.Value)))
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
	file, err := os.Open(path) //nolint:gosec // the operator names it
	if err != nil {
		return nil, fmt.Errorf("opening settings: %w", err)
	}
	defer func() { _ = file.Close() }() // read only
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading settings: %w", err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("settings file %s is too large: must be at most %d bytes", path, maxFile)
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
		return nil, fmt.Errorf("%s:%d:%d: invalid settings: must be a mapping, such as slots: 4", path, settings.Line, settings.Column)
	}
	seen := map[string]bool{}
	for i := 0; i < len(settings.Content); i += 2 {
		key := settings.Content[i]
		if seen[key.Value] {
			return nil, fmt.Errorf("%s:%d:%d: duplicate %q", path, key.Line, key.Column, key.Value)
		}
		seen[key.Value] = true
	}
	return settings, nil
}

// set sets a flag from the file: from a scalar, a list, or a mapping for flags of the
// form name=value.
func set(flags *pflag.FlagSet, f *pflag.Flag, value *yaml.Node) error {
	var values []string
	scalars := true
	for i, item := range value.Content {
		scalars = scalars && item.Kind == yaml.ScalarNode
		switch {
		case value.Kind == yaml.SequenceNode:
			values = append(values, item.Value)
		case i%2 == 1:
			values = append(values, value.Content[i-1].Value+"="+item.Value)
		}
	}
	switch {
	case value.Kind == yaml.ScalarNode:
		values = []string{value.Value}
	case value.Kind != yaml.SequenceNode && value.Kind != yaml.MappingNode || !scalars:
		return fmt.Errorf("invalid %s: must be a scalar, or a list or mapping of scalars", f.Name)
	case !takesSeveral(f):
		return fmt.Errorf("invalid %s: must be one scalar", f.Name)
	}
	for _, v := range values {
		if err := flags.Set(f.Name, v); err != nil {
			return invalid(f.Name, f, v)
		}
	}
	return nil
}

// FlagError turns an error of pflag into one in the words of this program. It is for
// cobra.Command.SetFlagErrorFunc.
func FlagError(err error) error {
	if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return fmt.Errorf("missing value for --%s", missing.GetFlag().Name)
	}
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return invalid("--"+bad.GetFlag().Name, bad.GetFlag(), bad.GetValue())
	}
	return err
}

// forms are the forms of values, by the type of their flag.
var forms = map[string]string{
	"bool": "true or false", "int": "an integer", "int64": "an integer", "float64": "a number", "duration": "a duration such as 30s",
	"uint32": "an integer from 0 to 4294967295", "uint64": "an integer of 0 or more",
	"stringToString": "KEY=VALUE", "stringSlice": "a comma-separated list",
}

func invalid(name string, f *pflag.Flag, value string) error {
	return fmt.Errorf("invalid %s %q: must be %s", name, value, forms[f.Value.Type()])
}

// takesSeveral reports whether a flag is repeatable.
func takesSeveral(f *pflag.Flag) bool {
	if _, ok := f.Value.(pflag.SliceValue); ok {
		return true
	}
	return strings.HasPrefix(f.Value.Type(), "stringTo")
}

// suggestion names the most similar setting, if one is similar.
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

// distance is the number of bytes to insert, remove or change.
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
