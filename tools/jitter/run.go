package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// maxMessages limits the lines of a failed run's output that are printed.
const maxMessages = 40

// plan is what sleeps in a run. Package sleep reads it.
type plan struct {
	seed  uint64 // 0: a site that the user named
	Pause time.Duration
	Times int
	Sites []int
	Log   string
}

// result is what a run has shown.
type result struct {
	failed   bool
	tests    []string // that failed
	messages []string
	slept    []site // in the order of their first sleep
	sleeps   int
	took     time.Duration
}

// plans returns the plan of each seed, or one with the site that the user named.
func (b *testBinary) plans(o options) ([]plan, error) {
	if o.site != "" {
		i, err := b.find(o.site)
		return []plan{{Pause: o.pause, Times: o.times, Sites: []int{i}}}, err
	}
	var plans []plan
	for i := range o.seeds {
		p := plan{seed: o.seed + uint64(i), Pause: o.pause, Times: o.times}
		for i, s := range b.sites {
			if isPicked(p.seed, s, o.oneIn) {
				p.Sites = append(p.Sites, i)
			}
		}
		plans = append(plans, p)
	}
	return plans, nil
}

// isPicked reports whether a seed picks a site. The choice does not depend on other sites,
// so it is the same with more packages, and after a change of another file.
func isPicked(seed uint64, s site, oneIn uint64) bool {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.String())) // never fails
	return rand.New(rand.NewPCG(seed, h.Sum64())).Uint64N(oneIn) == 0
}

// find returns the index of the site that the user named.
func (b *testBinary) find(name string) (int, error) {
	file, text, _ := strings.Cut(name, ":")
	file = path.Clean(filepath.ToSlash(file))
	line, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("invalid -site %q: must be FILE:LINE, as in coordinator/session/session.go:120", name)
	}
	nearest, distance := site{}, -1
	for i, s := range b.sites {
		if s.file != file {
			continue
		}
		d := max(s.line-line, line-s.line)
		if d == 0 {
			return i, nil
		}
		if distance < 0 || d < distance {
			nearest, distance = s, d
		}
	}
	if distance < 0 {
		return 0, fmt.Errorf("unknown -site %q: no line of this file can sleep; name it from the root of the module, as %s, and its package with -pkg or -with", name, b.sites[0])
	}
	return 0, fmt.Errorf("unknown -site %q: no statement begins there; the nearest line with one is %s", name, nearest)
}

// run runs the tests once.
func (b *testBinary) run(ctx context.Context, o options, p plan, tmp string) (*result, error) {
	p.Log = filepath.Join(tmp, "log")
	text, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encoding the plan: %w", err)
	}
	name := filepath.Join(tmp, "plan.json")
	if err = os.RemoveAll(p.Log); err != nil {
		return nil, fmt.Errorf("removing the log of the last run: %w", err)
	}
	if err = os.WriteFile(name, text, 0o600); err != nil {
		return nil, fmt.Errorf("writing the plan: %w", err)
	}
	// More tests at once than processors: most of them sleep.
	cmd := command(ctx, b.pkg.Dir, b.path, "-test.parallel=16", "-test.timeout=10m", "-test.run="+o.run)
	cmd.Env = append(cmd.Environ(), "JITTER_PLAN="+name)
	start := time.Now()
	out, err := cmd.CombinedOutput()
	r := &result{took: time.Since(start)}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("running the tests of %s: %w", o.pkg, context.Cause(ctx))
	case errors.As(err, &exit):
		r.failed = true
	case err != nil:
		return nil, fmt.Errorf("running the tests of %s: %w", o.pkg, err)
	}
	r.readOutput(string(out))
	return r, b.readLog(p.Log, r)
}

var (
	failRE    = regexp.MustCompile(`^\s*--- FAIL: (\S+)`)
	messageRE = regexp.MustCompile(`^\s*\S+\.go:\d+: |^panic: |^fatal error: |^WARNING: DATA RACE`)
)

// readOutput finds the tests that failed, and their messages; if there are neither, the
// end of the output.
func (r *result) readOutput(out string) {
	if !r.failed {
		return
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for _, line := range lines {
		if m := failRE.FindStringSubmatch(line); m != nil {
			r.tests = append(r.tests, m[1])
		} else if messageRE.MatchString(line) {
			r.messages = append(r.messages, strings.TrimSpace(line))
		}
	}
	if len(r.tests)+len(r.messages) == 0 {
		r.messages = lines[max(0, len(lines)-maxMessages):]
	}
	r.messages = r.messages[:min(len(r.messages), maxMessages)]
}

// readLog reads which sites have slept.
func (b *testBinary) readLog(name string, r *result) error {
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading which lines slept: %w", err)
	}
	known := map[int]bool{}
	for line := range strings.Lines(string(text)) {
		i, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil || i < 0 || i >= len(b.sites) {
			continue // A process was killed while it wrote.
		}
		r.sleeps++
		if !known[i] {
			known[i] = true
			r.slept = append(r.slept, b.sites[i])
		}
	}
	return nil
}

// print prints the result of a run, and for a failure how to repeat it.
func (r *result) print(out io.Writer, o options, p plan) {
	name, verdict := "site "+o.site, "passed"
	if o.site == "" {
		name = "seed " + strconv.FormatUint(p.seed, 10)
	}
	if r.failed {
		verdict = "FAILED"
	}
	fmt.Fprintf(out, "%s: %s in %.1f s, after %d sleeps at %d lines\n", name, verdict, r.took.Seconds(), r.sleeps, len(r.slept))
	if !r.failed {
		return
	}
	for _, test := range r.tests {
		fmt.Fprintf(out, "    failed: %s\n", test)
	}
	for _, message := range r.messages {
		fmt.Fprintf(out, "    | %s\n", message)
	}
	for _, s := range r.slept {
		fmt.Fprintf(out, "    slept: %s\n", s)
	}
	fmt.Fprintf(out, "    repeat: %s\n", o.repeat(p))
}

// repeat returns the command that repeats a run.
func (o options) repeat(p plan) string {
	var b strings.Builder
	b.WriteString("make jitter PKG=" + o.pkg)
	if o.with != "" {
		fmt.Fprintf(&b, " WITH='%s'", o.with)
	}
	if o.site != "" {
		b.WriteString(" SITE=" + o.site)
	} else {
		fmt.Fprintf(&b, " SEED=%d SEEDS=1 ONE_IN=%d", p.seed, o.oneIn)
	}
	fmt.Fprintf(&b, " SLEEP=%s TIMES=%d", o.pause, o.times)
	if o.run != "" { // make reads $$ as $.
		fmt.Fprintf(&b, " RUN='%s'", strings.ReplaceAll(o.run, "$", "$$"))
	}
	return b.String()
}
