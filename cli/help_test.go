package cli

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// commands returns all commands of dtaskctl by their path, except cobra's own.
func commands(t *testing.T) map[string]*cobra.Command {
	t.Helper()
	a, _, _ := setup(t, nil)
	all := make(map[string]*cobra.Command)
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		all[cmd.CommandPath()] = cmd
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(a))
	return all
}

// maxColumns is the width of a terminal that shows help without wrapping.
const maxColumns = 100

func TestEveryCommandHasAShortHelpAndAnExample(t *testing.T) {
	t.Parallel()
	for path, cmd := range commands(t) {
		first, _ := utf8.DecodeRuneInString(cmd.Short)
		switch n := utf8.RuneCountInString(cmd.Short); {
		case n == 0 || n > 60:
			t.Errorf("%s: short help has %d characters, want 1 to 60: %q", path, n, cmd.Short)
		case strings.HasSuffix(cmd.Short, ".") || !unicode.IsUpper(first):
			t.Errorf("%s: short help is not an imperative without a period: %q", path, cmd.Short)
		}
		if !strings.Contains(cmd.Example+"\n", path+" ") && !strings.Contains(cmd.Example+"\n", path+"\n") {
			t.Errorf("%s: no example of it in %q", path, cmd.Example)
		}
		for line := range strings.Lines(cmd.Long) {
			if utf8.RuneCountInString(line) > maxColumns+1 {
				t.Errorf("%s: line of more than %d columns: %q", path, maxColumns, line)
			}
		}
	}
}

func TestEveryFlagHasANounPhraseAsHelp(t *testing.T) {
	t.Parallel()
	for path, cmd := range commands(t) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			_, help := pflag.UnquoteUsage(f)
			if help == "" || strings.HasSuffix(help, ".") {
				t.Errorf("%s --%s: help is empty or ends with a period: %q", path, f.Name, help)
			}
			if f.Value.Type() != "bool" && !strings.Contains(f.Usage, "`") {
				t.Errorf("%s --%s: help has no `PLACEHOLDER`: %q", path, f.Name, f.Usage)
			}
		})
	}
}

func TestHelpFitsATerminal(t *testing.T) {
	t.Parallel()
	for path := range commands(t) {
		a, out, _ := setup(t, nil)
		if code := run(t.Context(), append(strings.Fields(path)[1:], "--help"), a); code != exitOK {
			t.Errorf("%s --help: got exit code %d", path, code)
		}
		for line := range strings.Lines(out.String()) {
			if utf8.RuneCountInString(line) > maxColumns+1 {
				t.Errorf("%s --help: line of more than %d columns: %q", path, maxColumns, line)
			}
		}
	}
}

// foreign are words of Go and gRPC, which mean nothing to users.
var foreign = []string{"strconv", "rpc error", "code =", "parse error", "parsing", "invalid argument", "desc =", "%!", "&{", "0x", "time:", "yaml: line"}

// TestInvalidValuesAreReportedInPlainWords runs every command with invalid values
// for every flag, and with invalid arguments, where no coordinator responds.
func TestInvalidValuesAreReportedInPlainWords(t *testing.T) {
	t.Parallel()
	nobody, dir := closedPort(t), t.TempDir()
	values := []string{"", "x", "-1", "1e99", "99999999999999999999", "5x", "a=b=c", "\"", "a,,b", "%s"}
	all := commands(t)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		names := []string{"addr", "socket", "context", "ca-file", "token-file", "cluster-id", "color", "output", "timeout"}
		all[path].LocalFlags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		for _, value := range values {
			lines := [][]string{{value}, {value, value}}
			for _, name := range names {
				lines = append(lines, []string{"--" + name + "=" + value}, []string{"42/fetch", "--" + name + "=" + value})
			}
			for _, args := range lines {
				a, _, stderr := setup(t, map[string]string{"DTASK_ADDR": nobody})
				a.dir = dir
				run(t.Context(), slices.Concat(strings.Fields(path)[1:], []string{"--timeout", "1ms"}, args), a)
				for _, word := range foreign {
					if strings.Contains(stderr.String(), word) {
						t.Errorf("%s %q: %q in %s", path, args, word, stderr)
					}
				}
			}
		}
	}
}

// TestErrorsOfACoordinatorAreReportedInPlainWords runs the examples of every command
// against a server that answers every call with the same gRPC error.
func TestErrorsOfACoordinatorAreReportedInPlainWords(t *testing.T) {
	t.Parallel()
	for _, code := range []codes.Code{codes.Unimplemented, codes.Internal, codes.Unknown, codes.Unauthenticated, codes.InvalidArgument} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			addr, done, err := listenAndServe(grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
				return status.Error(code, "broken")
			})))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(done)
			dir := t.TempDir()
			for path, cmd := range commands(t) {
				for line := range strings.Lines(cmd.Example) {
					args := strings.Fields(line)
					if cmd.HasSubCommands() || args[0] != "dtaskctl" || slices.Contains(args, "|") {
						continue
					}
					a, _, stderr := setup(t, map[string]string{"DTASK_ADDR": addr})
					a.dir = dir
					end := len(args)
					if i := slices.Index(args, "--"); i >= 0 {
						end = i // the rest is another command's
					}
					run(t.Context(), slices.Insert(args, end, "--timeout=20ms")[1:], a)
					for _, word := range foreign {
						if strings.Contains(stderr.String(), word) {
							t.Errorf("%s: %q in %s", path, word, stderr)
						}
					}
				}
			}
		})
	}
}
