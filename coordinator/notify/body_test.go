package notify

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/dtask/dtask/cli/show"
)

// names gives the names of a document's fields.
func names(t *testing.T, document any) []string {
	t.Helper()
	b, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(b, &fields); err != nil {
		t.Fatal(err)
	}
	var list []string
	for name := range fields {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// Who is told reads the same documents as who asks.
func TestDocumentsHaveTheFieldsOfTheCommandLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ got, want any }{
		"job":         {job{}, show.Job{}},
		"dead letter": {letter{}, show.LetterWithHistory{}},
		"attempt":     {attempt{}, show.Attempt{}},
	} {
		if got, want := names(t, c.got), names(t, c.want); !slices.Equal(got, want) {
			t.Errorf("%s has %v, dtaskctl prints %v", name, got, want)
		}
	}
}
