package archtest

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/dtask/dtask"

// mayImport is the package layout of docs/architecture.md as a table: a package of
// this module may import the listed packages of this module, and no others. A name
// ending in /... covers the package and all packages below it; the longest rule that
// covers a package applies. Tests may import anything.
var mayImport = map[string][]string{
	// What users write, the protocol, and the two pure packages.
	"proto/...":     {"proto/..."},
	"spec":          {"proto/dtask/v1", "internal/array", "internal/calendar", "internal/nearest", "internal/secretname", "internal/taskbody", "internal/zoneinfo"},
	"scheduler/...": {"scheduler/..."},
	"fsm":           {"proto/...", "internal/taskbody"},

	// The component that calls.
	"client":  {"proto/dtask/v1", "internal/array", "internal/auth", "internal/buildinfo", "internal/columns", "internal/controlline", "internal/loopback", "internal/taskbody", "internal/sendqueue", "internal/tlsconf"},
	"cli/...": {"cli/...", "client", "spec", "proto/dtask/v1", "internal/array", "internal/audit", "internal/auth", "internal/backup", "internal/buildinfo", "internal/document", "internal/durable", "internal/exitstatus", "internal/statetext", "internal/tlsconf", "internal/zoneinfo"},

	// The component that executes.
	"worker/...": {"worker/...", "client", "proto/dtask/v1", "internal/array", "internal/auth", "internal/columns", "internal/controlline", "internal/exitstatus", "internal/loglimit", "internal/loopback", "internal/secretname", "internal/sendqueue", "internal/taskbody", "internal/tlsconf"},

	// The component that decides and remembers.
	"coordinator/logstore":   {"internal/durable", "internal/mmap"},
	"coordinator/transport":  {"internal/connlimit", "internal/loglimit", "internal/timescale", "internal/tlsconf", "internal/turns"},
	"coordinator/raftnode":   {"coordinator/logstore", "coordinator/membership/datadir", "coordinator/transport", "internal/durable", "internal/loglimit", "internal/timescale", "internal/tlsconf"},
	"coordinator/leader":     {"internal/timescale"},
	"coordinator/sequencer":  {"fsm", "scheduler/...", "proto/...", "internal/calendar", "internal/columns", "internal/exitstatus", "internal/timescale", "internal/zoneinfo"},
	"coordinator/history":    {"fsm", "coordinator/history/...", "proto/...", "internal/durable", "internal/mmap"},
	"coordinator/notify":     {"fsm", "scheduler/backoff", "proto/dtask/v1", "internal/document", "internal/hook"},
	"coordinator/session":    {"fsm", "coordinator/sequencer", "proto/...", "internal/auth", "internal/columns", "internal/sendqueue"},
	"coordinator/api":        {"spec", "fsm", "coordinator/history", "coordinator/sequencer", "coordinator/session", "proto/...", "internal/array", "internal/audit", "internal/auth", "internal/backup", "internal/calendar", "internal/columns", "internal/nearest", "internal/taskbody", "internal/sendqueue", "internal/statetext", "internal/zoneinfo"},
	"coordinator/offline":    {"spec", "fsm", "coordinator/history", "coordinator/logstore", "coordinator/membership", "coordinator/membership/datadir", "coordinator/raftnode", "proto/dtask/v1", "internal/audit", "internal/backup", "internal/durable"},
	"coordinator/audit":      {"internal/audit", "internal/durable", "internal/timescale"},
	"coordinator/access":     {"fsm", "coordinator/sequencer", "proto/dtask/v1", "internal/auth", "internal/tlsconf"},
	"coordinator/web":        {"proto/dtask/v1", "internal/telemetry"},
	"coordinator/membership": {"coordinator/membership/datadir", "coordinator/raftnode", "coordinator/sequencer", "coordinator/transport", "fsm", "proto/dtask/v1", "internal/auth", "internal/timescale", "internal/tlsconf"},
	"coordinator":            {"spec", "fsm", "scheduler", "coordinator/...", "proto/...", "internal/..."},

	"coordinator/history/format":     {"fsm"},
	"coordinator/membership/datadir": {"coordinator/logstore", "internal/durable"},
	"coordinator/history/index":      {"fsm", "coordinator/history/format", "proto/dtask/v1"},

	// Packages that every component may use; they use no component.
	"internal/archtest":    {},
	"internal/array":       {"proto/dtask/v1"},
	"internal/audit":       {"proto/dtask/v1"},
	"internal/auth":        {"proto/dtask/v1"},
	"internal/backup":      {"internal/durable"},
	"internal/buildinfo":   {},
	"internal/calendar":    {"internal/zoneinfo"},
	"internal/columns":     {"proto/dtask/v1"},
	"internal/config":      {},
	"internal/connlimit":   {},
	"internal/controlline": {},
	"internal/loopback":    {},
	"internal/document":    {"proto/dtask/v1", "internal/audit"},
	"internal/durable":     {},
	"internal/hook":        {},
	"internal/loglimit":    {},
	"internal/mmap":        {},
	"internal/nearest":     {},
	"internal/sdnotify":    {},
	"internal/secretname":  {},
	"internal/sendqueue":   {},
	"internal/statetext":   {},
	"internal/telemetry":   {"internal/connlimit"},
	"internal/timescale":   {},
	"internal/tlsconf":     {"internal/durable"},
	"internal/turns":       {},
	"internal/program":     {},
	"internal/taskbody":    {"proto/dtask/v1"},
	"internal/exitstatus":  {},
	"internal/zoneinfo":    {"internal/nearest"},

	// The programs: flags and configuration, then Run, then an exit code.
	"cmd/dtask":                {"cmd/internal/...", "internal/program", "worker/process"},
	"cmd/dtaskd":               {"cmd/internal/dtaskd"},
	"cmd/dtask-worker":         {"cmd/internal/dtaskworker"},
	"cmd/dtaskctl":             {"cmd/internal/dtaskctl"},
	"cmd/internal/dtaskd":      {"coordinator", "coordinator/offline", "worker/...", "internal/buildinfo", "internal/config", "internal/program", "client", "proto/dtask/v1", "internal/auth", "internal/durable", "internal/loopback", "internal/sdnotify", "internal/tlsconf"},
	"cmd/internal/dtaskworker": {"client", "worker/...", "internal/buildinfo", "internal/config", "internal/loopback", "internal/program", "internal/telemetry", "internal/tlsconf"},
	"cmd/internal/dtaskctl":    {"cli/...", "internal/program"},

	// Suites of whole processes, and the demo and benchmark programs.
	"test/cluster/...": {"..."},
	"test/demo":        {"..."},
	"test/alerts":      {"..."},
	"test/bench/...":   {"..."},
	"test/boltpages":   {},
	"test/chaos/...":   {"..."},
	"test/deploy":      {"..."},
	"test/e2e/...":     {"..."},
	"test/faults":      {"..."},
	"test/leak":        {},
	"test/mutants":     {"test/record"},
	"test/packaging":   {"test/cluster"},
	"test/programfile": {},
	"tools/...":        {},
	"test/record/...":  {"test/record", "test/mutants"},
	"test/simulation":  {"..."},
	"test/upgrade":     {"..."},
	"test/workflows":   {},
}

// mustNotLink lists what a package must not contain at any depth, and why. Both sides
// may end in /... as in mayImport.
var mustNotLink = []struct{ who, what, why string }{
	{"cmd/dtask-worker", "github.com/hashicorp/raft/...", "a worker is not a replica"},
	{"cmd/dtask-worker", "go.etcd.io/bbolt", "a worker has no store"},
	{"cmd/dtask-worker", module + "/fsm", "a worker knows proto/dtask/v1 only"},
	{"cmd/dtask-worker", module + "/scheduler/...", "a worker makes no decisions"},
	{"cmd/dtask-worker", module + "/coordinator/...", "components share only the protocol"},
	{"cmd/dtaskctl", "github.com/hashicorp/raft/...", "a client is not a replica"},
	{"cmd/dtaskctl", "go.etcd.io/bbolt", "a client has no store"},
	{"cmd/dtaskctl", module + "/fsm", "a client knows proto/dtask/v1 only"},
	{"cmd/dtaskctl", module + "/scheduler/...", "a client asks, it does not place"},
	{"cmd/dtaskctl", module + "/coordinator/...", "components share only the protocol"},
	{"cmd/dtaskctl", module + "/worker/...", "components share only the protocol"},
	{"worker/...", "github.com/hashicorp/raft/...", "users link this package into their own programs"},
	{"worker", "github.com/prometheus/...", "users link this package into their own programs; worker/metrics is for those that want metrics"},
	{"client", "github.com/hashicorp/raft/...", "users link this package into their own programs"},
	{"cmd/dtask", module + "/test/...", "a released program has no fault switches"},
	{"cmd/dtaskd", module + "/test/...", "a released program has no fault switches"},
	{"cmd/dtask-worker", module + "/test/...", "a released program has no fault switches"},
	{"cmd/dtaskctl", module + "/test/...", "a released program has no fault switches"},
	{"cmd/dtask-worker", "testing", "test code stays in tests"},
	{"cmd/dtaskctl", "testing", "test code stays in tests"},
}

// A pkg is the go command's description of one package.
type pkg struct {
	ImportPath, Doc string
	GoFiles         []string
	Imports, Deps   []string
}

// name is the package's directory in the module.
func (p pkg) name() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

func TestImportsFollowTheHouse(t *testing.T) {
	t.Parallel()
	for _, p := range load(t) {
		rule, ok := lookup(p.name())
		if !ok {
			t.Errorf("%s is in no rule: place it in docs/architecture.md and in mayImport", p.name())
			continue
		}
		for _, imported := range p.Imports {
			target, ours := strings.CutPrefix(imported, module+"/")
			if ours && !coveredByAny(mayImport[rule], target) {
				t.Errorf("%s must not import %s (rule %q)", p.name(), target, rule)
			}
		}
	}
}

func TestEveryRuleHasAPackage(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, p := range load(t) {
		if rule, ok := lookup(p.name()); ok {
			used[rule] = true
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(mayImport)) {
		if !used[rule] {
			t.Errorf("mayImport has a rule for %s, which has no package", rule)
		}
	}
}

func TestNothingLinksWhatItMustNot(t *testing.T) {
	t.Parallel()
	for _, p := range load(t) {
		for _, rule := range mustNotLink {
			if !covers(rule.who, p.name()) {
				continue
			}
			for _, dep := range p.Deps {
				if covers(rule.what, dep) {
					t.Errorf("%s must not link %s: %s", p.name(), dep, rule.why)
				}
			}
		}
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	t.Parallel()
	for _, p := range load(t) {
		if len(p.GoFiles) > 0 && p.Doc == "" && !strings.HasPrefix(p.name(), "proto/") {
			t.Errorf("%s has no package comment", p.name())
		}
	}
}

func TestTheLongestRuleHolds(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"worker/process":       "worker/...",
		"coordinator":          "coordinator",
		"coordinator/raftnode": "coordinator/raftnode",
		"proto/dtask/v1":       "proto/...",
	} {
		if got, ok := lookup(name); !ok || got != want {
			t.Errorf("lookup(%q) = %q, %v; want %q", name, got, ok, want)
		}
	}
	for _, name := range []string{"workers", "coordinator/elsewhere", "util"} {
		if got, ok := lookup(name); ok {
			t.Errorf("lookup(%q) = %q; want no rule", name, got)
		}
	}
}

// lookup returns the longest rule of mayImport that covers the package.
func lookup(name string) (rule string, ok bool) {
	for r := range mayImport {
		if covers(r, name) && len(r) > len(rule) {
			rule, ok = r, true
		}
	}
	return rule, ok
}

func coveredByAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return covers(p, name) })
}

// covers reports whether a pattern matches a package: "..." matches all, a name
// ending in /... matches it and all packages below it, any other name only itself.
func covers(pattern, name string) bool {
	if pattern == "..." {
		return true
	}
	prefix, deep := strings.CutSuffix(pattern, "/...")
	return name == prefix || deep && strings.HasPrefix(name, prefix+"/")
}

// load lists this module's packages.
func load(t *testing.T) []pkg {
	t.Helper()
	watchSources(t)
	list := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Doc,GoFiles,Imports,Deps", module+"/...")
	out, err := list.Output()
	if err != nil {
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("listing packages: %v\n%s", err, failed.Stderr)
		}
		t.Fatalf("listing packages: %v", err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatalf("reading the list of packages: %v", err)
		}
		pkgs = append(pkgs, p)
	}
}

// watchSources stats every source file, so that the go command knows that a result of
// these tests depends on all of them and doesn't reuse an outdated one.
func watchSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == ".git" {
			return cmp.Or(err, fs.SkipDir)
		}
		if d.IsDir() || filepath.Ext(path) == ".go" {
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil {
		t.Fatalf("looking at the sources: %v", err)
	}
}
