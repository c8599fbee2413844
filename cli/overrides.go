package cli

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/pflag"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// maxSetFile bounds a file of parameters, in bytes.
const maxSetFile = 1 << 20

// jobOverrides are flags that change what job files say.
type jobOverrides struct {
	labels, params pairs
	setFile        string
}

func (o *jobOverrides) bind(fl *pflag.FlagSet) {
	fl.Var(&o.labels, "label", "label `KEY=VALUE` of the job, in addition to those of the file; repeatable")
	o.bindParams(fl)
}

// bindParams adds the flags that give parameters their values.
func (o *jobOverrides) bindParams(fl *pflag.FlagSet) {
	fl.Var(&o.params, "set", "value `NAME=VALUE` of a parameter that the file declares; repeatable")
	bind(fl, &o.setFile, "set-file", "", "`FILE` with values of parameters, a mapping in YAML or JSON; --set takes precedence", notEmpty)
}

// withoutFile returns an error if a flag is set that needs a job file.
func (o *jobOverrides) withoutFile(fl *pflag.FlagSet) error {
	for _, name := range []string{"set", "set-file"} {
		if fl.Changed(name) {
			return fmt.Errorf("--%s needs a job file that declares parameters", name)
		}
	}
	return nil
}

// options adds the flags, with the name and the priority if they are not empty, to the
// options of job files.
func (o *jobOverrides) options(opts spec.Options, name, priority string) (spec.Options, error) {
	if opts.Name = name; name != "" {
		if err := spec.CheckName(name); err != nil {
			return opts, usage(fmt.Errorf("invalid --name: %w", err))
		}
	}
	if priority != "" {
		opts.Priority, _ = parsePriority(priority) // checked with the flag
	}
	for _, label := range slices.Sorted(maps.Keys(o.labels.values)) {
		if err := spec.CheckLabel(label, o.labels.values[label]); err != nil {
			return opts, usage(fmt.Errorf("invalid --label %s: %w", label, err))
		}
	}
	opts.Labels = o.labels.values
	var err error
	opts.Params, err = o.values()
	return opts, err
}

// values returns the values of parameters: those of the file, and those of the flags.
func (o *jobOverrides) values() (map[string]string, error) {
	if o.setFile == "" {
		return o.params.values, nil
	}
	if o.setFile == "-" {
		return nil, usagef("--set-file needs a file: standard input is for job files")
	}
	text, err := readInput(o.setFile, nil, maxSetFile)
	if err != nil {
		return nil, &commandError{err: err, code: exitJobFile, hint: "--set-file takes the path of a file with values of parameters"}
	}
	if len(text) > maxSetFile {
		return nil, usagef("--set-file %s is too large: must be at most 1 MiB", o.setFile)
	}
	values, err := spec.ParseParams(o.setFile, text)
	if err != nil {
		return nil, err //nolint:wrapcheck // faults name the file
	}
	maps.Copy(values, o.params.values)
	return values, nil
}

// overrides reports whether the options replace something in job files.
func overrides(opts spec.Options) bool {
	return opts.Name != "" || opts.Priority != dtaskv1.Priority_PRIORITY_UNSPECIFIED || len(opts.Labels) > 0 || len(opts.Params) > 0
}
