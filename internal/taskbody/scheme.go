package taskbody

import (
	"regexp"
	"slices"
	"strings"
)

var scheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)

// FileScheme is the scheme of a URL that names a local file.
const FileScheme = "file"

// schemes are those that workers can read and write. All workers of this version have
// the same ones.
var schemes = []string{FileScheme}

// Scheme returns the scheme of an input, output or standard input that is a URL, in
// lower case, such as s3; empty for a path.
func Scheme(text string) string {
	return strings.ToLower(strings.TrimSuffix(scheme.FindString(text), "://"))
}

// Supported reports whether workers can read and write URLs with this scheme. An empty
// one stands for paths.
func Supported(scheme string) bool { return scheme == "" || slices.Contains(schemes, scheme) }

// Schemes returns the schemes of the URLs that workers can read and write.
func Schemes() []string { return slices.Clone(schemes) }
