package taskbody

import "testing"

func TestPathsAndFileURLsAreSupported(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		scheme    string
		supported bool
	}{
		"/data/in.csv":           {"", true},
		"in.csv":                 {"", true},
		"/data/a://b":            {"", true},
		"${{ item }}":            {"", true},
		"file:///data/in.csv":    {"file", true},
		"FILE:///data/in.csv":    {"file", true},
		"s3://bucket/in.csv":     {"s3", false},
		"S3://bucket/in.csv":     {"s3", false},
		"https://example.org/in": {"https", false},
		"git+ssh://example.org":  {"git+ssh", false},
	} {
		if got := Scheme(text); got != want.scheme || Supported(got) != want.supported {
			t.Errorf("%s: scheme %q, supported %t, want %q, %t", text, got, Supported(got), want.scheme, want.supported)
		}
	}
}
