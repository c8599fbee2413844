package clustertest

import (
	"os"
	"strconv"
	"testing"
)

// TLSVariable decides for all clusters of a suite that runs with and without TLS: with 1
// they have TLS and identities, with 0 none has.
const TLSVariable = "DTASK_TEST_TLS"

// TLS reports whether a cluster of a test has TLS and identities. The variable decides, if
// it is set.
func TLS(t *testing.T, missing bool) bool {
	t.Helper()
	text := os.Getenv(TLSVariable)
	if text == "" {
		return missing
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		t.Fatalf("invalid %s %q: must be 1 or 0", TLSVariable, text)
	}
	return on
}

// TLSOf is TLS for a suite that has one cluster per seed: without the variable, those of
// odd seeds have TLS and identities.
func TLSOf(t *testing.T, seed uint64) bool {
	t.Helper()
	return TLS(t, seed%2 == 1)
}
