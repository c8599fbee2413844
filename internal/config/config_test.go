package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// program is a set of flags as a program has it.
type program struct {
	flags  *pflag.FlagSet
	join   []string
	label  map[string]string
	slots  int
	drain  time.Duration
	secret string
}

func newProgram() *program {
	p := &program{flags: pflag.NewFlagSet("p", pflag.ContinueOnError)}
	p.flags.StringSliceVar(&p.join, "join", []string{"default:1"}, "")
	p.flags.StringToStringVar(&p.label, "label", nil, "")
	p.flags.IntVar(&p.slots, "slots", 1, "")
	p.flags.DurationVar(&p.drain, "drain-timeout", time.Second, "")
	p.flags.StringVar(&p.secret, "secret", "", "")
	p.flags.Bool("version", false, "")
	AddFlag(p.flags)
	return p
}

// fill parses args and fills the rest from env and a file with this text.
func (p *program) fill(t *testing.T, args []string, env map[string]string, file string) error {
	t.Helper()
	if file != "" {
		path := filepath.Join(t.TempDir(), "settings.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	if err := p.flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return Fill(p.flags, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
}

func TestTheNearestSourceWins(t *testing.T) {
	t.Parallel()
	const file = "slots: 2\ndrain-timeout: 2s\nsecret: from file\n"
	env := map[string]string{"DTASK_SLOTS": "3", "DTASK_DRAIN_TIMEOUT": "3s"}
	p := newProgram()
	if err := p.fill(t, []string{"--slots", "4"}, env, file); err != nil {
		t.Fatal(err)
	}
	if p.slots != 4 || p.drain != 3*time.Second || p.secret != "from file" || p.join[0] != "default:1" {
		t.Errorf("got %+v", p)
	}
}

func TestValuesContainEverySettingAndNoSecretOfAURL(t *testing.T) {
	t.Parallel()
	p := newProgram()
	if err := p.fill(t, []string{"--join", "a:1,b:2", "--secret", "https://user:word@hooks.example/T0/B0?token=x"}, nil, ""); err != nil {
		t.Fatal(err)
	}
	want := []any{"config", "", "drain-timeout", "1s", "join", "[a:1,b:2]", "label", "[]", "secret", "https://hooks.example", "slots", "1"}
	if got := Values(p.flags); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestChangedValuesDifferFromTheDefaultsWhereverTheyAreSet(t *testing.T) {
	t.Parallel()
	p := newProgram()
	if err := p.fill(t, []string{"--slots", "1"}, map[string]string{"DTASK_DRAIN_TIMEOUT": "2s"}, "join: [a:1]\n"); err != nil {
		t.Fatal(err)
	}
	got := ChangedValues(p.flags)
	i := slices.Index(got, any("config"))
	if i < 0 {
		t.Fatalf("got %v without the path of the file", got)
	}
	if rest, want := slices.Delete(got, i, i+2), []any{"drain-timeout", "2s", "join", "[a:1]"}; !slices.Equal(rest, want) {
		t.Errorf("got %v, want %v", rest, want)
	}
}

func TestListsAndMappingsComeFromEverywhere(t *testing.T) {
	t.Parallel()
	p := newProgram()
	if err := p.fill(t, nil, nil, "join: [a:1, b:2]\nlabel:\n  zone: eu\n  rack: 7\n"); err != nil {
		t.Fatal(err)
	}
	if strings.Join(p.join, " ") != "a:1 b:2" || p.label["zone"] != "eu" || p.label["rack"] != "7" {
		t.Errorf("from the file: %v %v", p.join, p.label)
	}
	p = newProgram()
	if err := p.fill(t, nil, map[string]string{"DTASK_JOIN": "a:1,b:2", "DTASK_LABEL": "zone=eu,rack=7"}, ""); err != nil {
		t.Fatal(err)
	}
	if strings.Join(p.join, " ") != "a:1 b:2" || p.label["zone"] != "eu" || p.label["rack"] != "7" {
		t.Errorf("from the environment: %v %v", p.join, p.label)
	}
}

func TestTheFileCanBeNamedByTheEnvironment(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("slots: 9"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newProgram()
	if err := p.fill(t, nil, map[string]string{"DTASK_CONFIG": path, "DTASK_VERSION": "true", "DTASK_SECRET": ""}, ""); err != nil || p.slots != 9 {
		t.Errorf("slots = %d, %v", p.slots, err)
	}
}

func TestErrorsNameTheSettingAndItsPosition(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env  map[string]string
		file string
		want []string
	}{
		"unknown key":     {nil, "slot: 2\nnothing-like-it: 1\n", []string{`:1:1: unknown setting "slot"; did you mean "slots"?`, `:2:1: unknown setting "nothing-like-it"`}},
		"bad value":       {nil, "\nslots: many\n", []string{`:2:1: invalid slots "many": must be an integer`}},
		"bad variable":    {map[string]string{"DTASK_SLOTS": "x"}, "", []string{`invalid DTASK_SLOTS "x": must be an integer`}},
		"duplicate":       {nil, "slots: 1\nslots: 2\n", []string{`:2:1: duplicate "slots"`}},
		"a list":          {nil, "- slots\n", []string{"invalid settings: must be a mapping"}},
		"list for one":    {nil, "slots: [1, 2]\n", []string{"invalid slots: must be one scalar"}},
		"deep":            {nil, "label: {a: {b: c}}\n", []string{"invalid label: must be a scalar, or a list or mapping of scalars"}},
		"not from a file": {nil, "version: true\n", []string{`unknown setting "version"`}},
		"not YAML":        {nil, "slots: [\n", []string{"settings.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := newProgram().fill(t, nil, c.env, c.file)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\ndoes not contain %q", err, want)
				}
			}
		})
	}
	for _, empty := range []string{"\n", "# nothing\n", "---\n", "null\n"} {
		if err := newProgram().fill(t, nil, nil, empty); err != nil {
			t.Errorf("an empty file %q: %v", empty, err)
		}
	}
	if err := newProgram().fill(t, []string{"--config", "/no/such/file"}, nil, ""); err == nil {
		t.Error("a missing file is accepted")
	}
}

// Users read these messages: nothing of pflag or strconv may be in them.
func TestErrorsOfFlagsAreInPlainWords(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"--slots=x":  `invalid --slots "x": must be an integer`,
		"--label=x":  `invalid --label "x": must be KEY=VALUE`,
		"--slots":    "missing value for --slots",
		"--nonesuch": "unknown flag: --nonesuch",
	} {
		if err := FlagError(newProgram().flags.Parse([]string{arg})); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", arg, err, want)
		}
	}
}

func TestSettingsAreShownWithoutTheSecretsOfURLs(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"https://user:word@hooks.example/T0?token=x": "https://hooks.example",
		"https://user:p%ss@hooks.example/T0":         "(invalid URL)",
		"file:///mnt/backups":                        "file:///mnt/backups",
		"a:1,b:2":                                    "a:1,b:2",
	} {
		if got := withoutSecret(value); got != want {
			t.Errorf("%s: got %s, want %s", value, got, want)
		}
	}
}
