package dtaskd

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/program"
)

// Workers may be older than names of clusters: their strings have none.
func TestInitNamesTheClusterAndTheStringsOfThoseWhoSeeTheName(t *testing.T) {
	t.Parallel()
	f := initialize(t)
	f.await("the name of the cluster", func() bool {
		status, err := f.admin.ClusterStatus(t.Context())
		return err == nil && status.GetName() == "home"
	})
	for purpose, want := range map[string]string{"user": "home", "coordinator": "home", "worker": ""} {
		text, _, err := f.admin.CreateJoinToken(t.Context(), client.JoinTokenOptions{Purpose: purpose, TTL: firstTTL, Uses: 1})
		if err != nil {
			t.Fatal(err)
		}
		join, err := client.ParseJoinString(text, purpose)
		if err != nil || join.ClusterName() != want {
			t.Errorf("for a %s: got the name %q, %v, want %q", purpose, join.ClusterName(), err, want)
		}
	}
	if got, err := f.admin.SetClusterName(t.Context(), "home"); err != nil || !got.GetAlready() {
		t.Errorf("the same name: got %v, %v", got, err)
	}
}

func TestAnInvalidNameOfTheClusterCreatesNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "n1")
	var stderr bytes.Buffer
	code := run(t.Context(), append([]string{"init", "--cluster-name", "eu:prod"}, setupOf(dir)...), io.Discard, &stderr)
	if code != program.ExitUsage || !strings.Contains(stderr.String(), `--cluster-name: invalid name "eu:prod" of the cluster: must be 1–63 letters, digits and -`) {
		t.Errorf("code %d, %s", code, &stderr)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory: %v", err)
	}
}
