// Command release builds what a release consists of: for each architecture, an archive with
// the three programs, the units and manifests of deploy/, and a bill of materials
// (CycloneDX), and SHA256SUMS over all of them.
//
//	go run ./tools/release -version v0.1.0 -date 1767225600 -out build/release
//
// The same source, version, date and version of Go give the same bytes, on any machine and in
// any directory.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// programs are the programs of a release.
var programs = []string{"dtask-worker", "dtaskctl", "dtaskd"}

// documents are what an archive has beside the programs; directories as a whole. The
// commands of docs/deploy.md write secrets into deploy/docker: its files are listed one by one.
var documents = []string{
	"CHANGELOG.md", "LICENSE", "README.md",
	"deploy/docker/Dockerfile", "deploy/docker/compose.yaml", "deploy/docker/prometheus.yml",
	"deploy/grafana", "deploy/kubernetes", "deploy/prometheus", "deploy/systemd",
}

// release is what is built.
type release struct {
	version string
	date    time.Time // of all files
	arches  []string
	out     string
}

// versionRE matches versions that can be part of file names and of linker flags.
var versionRE = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+-]*$`)

func main() {
	version := flag.String("version", "", "`VERSION` of the release")
	date := flag.Int64("date", 0, "`SECONDS` since 1970 that all files are from")
	arches := flag.String("arch", "amd64,arm64", "`ARCHITECTURES`, comma-separated")
	out := flag.String("out", "build/release", "`DIRECTORY` of the result, which is replaced")
	flag.Parse()
	r := release{*version, time.Unix(*date, 0).UTC(), strings.Split(*arches, ","), *out}
	if err := r.build(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// build makes all archives and their checksums.
func (r release) build(ctx context.Context) error {
	if !versionRE.MatchString(r.version) {
		return fmt.Errorf("invalid -version %q: must be letters, digits, dots, + and -", r.version)
	}
	if err := errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o755)); err != nil { //nolint:gosec // to be published
		return fmt.Errorf("preparing -out: %w", err)
	}
	var sums strings.Builder
	for _, arch := range r.arches {
		names, err := r.buildArch(ctx, arch)
		if err != nil {
			return fmt.Errorf("building for %s: %w", arch, err)
		}
		for _, name := range names {
			body, err := os.ReadFile(filepath.Join(r.out, name)) //nolint:gosec // just written
			if err != nil {
				return fmt.Errorf("reading a result: %w", err)
			}
			fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(body), name)
		}
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(sums.String()), 0o644) //nolint:gosec // to be published
}

// buildArch makes the archive and the bill of materials for one architecture, and returns
// their names.
func (r release) buildArch(ctx context.Context, arch string) (names []string, err error) {
	name := "dtask-" + r.version + "-linux-" + arch
	bin, err := os.MkdirTemp("", "dtask-release-")
	if err != nil {
		return nil, fmt.Errorf("creating a directory for the programs: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(bin)) }()
	if err := r.compile(ctx, arch, bin); err != nil {
		return nil, err
	}
	bom, err := r.billOfMaterials(bin)
	if err != nil {
		return nil, err
	}
	files := []file{{name: "sbom.cdx.json", mode: 0o644, body: bom}}
	for _, p := range programs {
		body, err := os.ReadFile(filepath.Join(bin, p)) //nolint:gosec // just compiled
		if err != nil {
			return nil, fmt.Errorf("reading a program: %w", err)
		}
		files = append(files, file{name: "bin/" + p, mode: 0o755, body: body})
	}
	for _, d := range documents {
		found, err := readTree(d)
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	archive, err := pack(name, files, r.date)
	if err != nil {
		return nil, err
	}
	for suffix, body := range map[string][]byte{".tar.gz": archive, ".cdx.json": bom} {
		if err := os.WriteFile(filepath.Join(r.out, name+suffix), body, 0o644); err != nil { //nolint:gosec // to be published
			return nil, fmt.Errorf("writing a result: %w", err)
		}
	}
	return []string{name + ".cdx.json", name + ".tar.gz"}, nil
}

// compile builds the programs. Neither the directory, nor the state of git, nor a C compiler
// has an influence on them.
func (r release) compile(ctx context.Context, arch, bin string) error {
	args := []string{
		"build", "-trimpath", "-buildvcs=false", "-mod=readonly",
		"-ldflags", "-s -w -buildid= -X github.com/dtask/dtask/internal/buildinfo.version=" + r.version, "-o", bin + string(filepath.Separator),
	}
	for _, p := range programs {
		args = append(args, "./cmd/"+p)
	}
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // versionRE limits the version
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}
