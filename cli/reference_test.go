package cli

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/spf13/cobra"
)

// referenceFile is made of the help texts. REWRITE=1 writes it.
const referenceFile = "../docs/cli.md"

const referenceHead = `# dtaskctl

What ` + "`dtaskctl COMMAND --help`" + ` prints, for each command. This file is generated:
` + "`make generate`" + ` writes it.
`

func TestTheReferenceHasTheHelpOfEveryCommand(t *testing.T) {
	t.Parallel()
	want := bytes.NewBufferString(referenceHead)
	all := commands(t)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(want, "\n## %s\n\n```text\n%s```\n", path, helpOf(t, all[path]))
	}
	if os.Getenv("REWRITE") != "" {
		if err := os.WriteFile(referenceFile, want.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is not current: run make generate and commit the result", referenceFile)
	}
}

func helpOf(t *testing.T, cmd *cobra.Command) string {
	t.Helper()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.InitDefaultHelpFlag() // as Execute does
	cmd.InitDefaultVersionFlag()
	if err := cmd.Help(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
