package packaging

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fullVariable builds for all architectures, each time with an empty build cache.
const fullVariable = "DTASK_RELEASE"

const releaseVersion = "v1.2.3-test"

// buildRelease builds a release in a copy of the source, and returns its files.
func buildRelease(t *testing.T, arches string) map[string][]byte {
	t.Helper()
	source, out := copySource(t), filepath.Join(t.TempDir(), "out")
	secret := filepath.Join(source, "deploy", "docker", "secrets")
	if err := os.MkdirAll(secret, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(secret, "token"), "written by the commands of docs/deploy.md", 0o600)
	cmd := exec.CommandContext(t.Context(), "go", "run", "./tools/release", "-version", releaseVersion, "-date", "1767225600", "-arch", arches, "-out", out)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "PWD="+source)
	if os.Getenv(fullVariable) != "" {
		cmd.Env = append(cmd.Env, "GOCACHE="+filepath.Join(t.TempDir(), "cache"))
	}
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	files := map[string][]byte{}
	entries, err := os.ReadDir(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(out, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// copySource copies what git tracks into a directory of its own.
func copySource(t *testing.T) (dir string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is missing")
	}
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root(t)
	names, err := list.Output()
	if err != nil {
		t.Skipf("the source is not in git: %v", err)
	}
	dir = t.TempDir()
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		body, err := os.ReadFile(filepath.Join(list.Dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, and not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), string(body), 0o600)
	}
	return dir
}

func TestTwoBuildsOfAReleaseAreEqual(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("links three programs twice")
	}
	arches := []string{"amd64"}
	if os.Getenv(fullVariable) != "" {
		arches = append(arches, "arm64")
	}
	first := buildRelease(t, strings.Join(arches, ","))
	second := buildRelease(t, strings.Join(arches, ","))
	for name, body := range first {
		if !bytes.Equal(body, second[name]) {
			t.Errorf("%s differs between two builds", name)
		}
	}
	if want := 2*len(arches) + 1; len(first) != want || len(second) != want {
		t.Errorf("%d and %d files, want %d", len(first), len(second), want)
	}
	for _, arch := range arches {
		name := "dtask-" + releaseVersion + "-linux-" + arch
		files := unpack(t, first[name+".tar.gz"], name)
		wantPrograms(t, files, arch)
		for file := range files {
			if strings.Contains(file, "secret") || strings.HasSuffix(file, ".env") {
				t.Errorf("the archive has %s", file)
			}
		}
		if !bytes.Equal(files["sbom.cdx.json"], first[name+".cdx.json"]) {
			t.Errorf("%s has another bill of materials than the one beside it", name)
		}
		wantModules(t, files)
		for _, suffix := range []string{".tar.gz", ".cdx.json"} {
			line := fmt.Sprintf("%x  %s%s\n", sha256.Sum256(first[name+suffix]), name, suffix)
			if !strings.Contains(string(first["SHA256SUMS"]), line) {
				t.Errorf("SHA256SUMS lacks %q", line)
			}
		}
	}
}

// unpack returns the files of an archive below a directory.
func unpack(t *testing.T, archive []byte, dir string) map[string][]byte {
	t.Helper()
	uncompressed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(uncompressed); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		name, ok := strings.CutPrefix(head.Name, dir+"/")
		want := int64(0o644)
		if strings.HasPrefix(name, "bin/") {
			want = 0o755
		}
		if !ok || head.Uid != 0 || head.Mode != want || head.ModTime.Unix() != 1767225600 {
			t.Errorf("%+v", head)
		}
		if files[name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// wantPrograms checks that an archive has static programs for an architecture, and what is
// needed to run them.
func wantPrograms(t *testing.T, files map[string][]byte, arch string) {
	t.Helper()
	for _, name := range []string{"bin/dtask-worker", "bin/dtaskctl", "bin/dtaskd"} {
		info, err := buildinfo.Read(bytes.NewReader(files[name]))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, s := range info.Settings {
			switch {
			case s.Key == "GOARCH" && s.Value != arch, s.Key == "CGO_ENABLED" && s.Value != "0", strings.HasPrefix(s.Key, "vcs"):
				t.Errorf("%s: %s=%s", name, s.Key, s.Value)
			}
		}
		if !bytes.Contains(files[name], []byte(releaseVersion)) {
			t.Errorf("%s lacks its version", name)
		}
	}
	for _, name := range []string{"LICENSE", "README.md", "deploy/systemd/dtaskd.service", "deploy/systemd/dtask-worker@.service"} {
		if len(files[name]) == 0 {
			t.Errorf("%s is missing", name)
		}
	}
}

// wantModules checks that the bill of materials has exactly the modules that are linked.
func wantModules(t *testing.T, files map[string][]byte) {
	t.Helper()
	var doc struct {
		BOMFormat, SpecVersion string
		Components             []struct {
			Type, Name, Version, Purl string
			Ref                       string `json:"bom-ref"`
		}
		Dependencies []struct {
			Ref       string
			DependsOn []string
		}
	}
	if err := json.Unmarshal(files["sbom.cdx.json"], &doc); err != nil {
		t.Fatal(err)
	}
	if doc.BOMFormat != "CycloneDX" || doc.SpecVersion != "1.5" {
		t.Errorf("format %s %s", doc.BOMFormat, doc.SpecVersion)
	}
	got, refs := map[string]bool{}, map[string]bool{}
	for _, c := range doc.Components {
		if refs[c.Ref] {
			t.Errorf("%s is listed twice", c.Ref)
		}
		refs[c.Ref] = true
		if c.Type == "library" {
			got[c.Name+" "+c.Version] = true
		}
	}
	for _, d := range doc.Dependencies {
		for _, ref := range d.DependsOn {
			if !refs[ref] {
				t.Errorf("%s depends on %s, which is not listed", d.Ref, ref)
			}
		}
	}
	want := map[string]bool{}
	for name, body := range files {
		if !strings.HasPrefix(name, "bin/") {
			continue
		}
		info, err := buildinfo.Read(bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		want["std "+strings.TrimPrefix(info.GoVersion, "go")] = true
		for _, m := range info.Deps {
			want[m.Path+" "+m.Version] = true
		}
	}
	if len(want) < 20 || !slices.Equal(sorted(got), sorted(want)) {
		t.Errorf("got %q, want %q", sorted(got), sorted(want))
	}
}

func sorted(set map[string]bool) (list []string) {
	for s := range set {
		list = append(list, s)
	}
	slices.Sort(list)
	return list
}
