package auth

import (
	"strings"
	"testing"
)

func TestATokenHasNeitherTheRoleOfAWorkerNorOfAReplica(t *testing.T) {
	t.Parallel()
	for r := Anonymous; r <= Replica; r++ {
		got, err := ParseTokenRole(r.String())
		if want := r != Anonymous && r != Worker && r != Replica; (err == nil) != want || want && got != r {
			t.Errorf("%s: got %s, %v", r, got, err)
		}
	}
}

func TestNamespacesAreNamesOrAllOfThem(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]bool{
		"etl": true, "a,b-2": true, "*": true, "": false, "*,etl": false, "-a": false, "a-": false, "A": false, "a.b": false, strings.Repeat("a", 64): false,
	} {
		if err := CheckNamespaces(strings.Split(list, ",")); (err == nil) != want {
			t.Errorf("%q: %v", list, err)
		}
	}
}

func TestTheHomeOfAPrincipalIsTheDefaultOrItsOnlyNamespace(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{"etl": "etl", "default,etl": "default", "a,b": "", "*": "default"} {
		p := Principal{Role: Submitter, Namespaces: strings.Split(list, ",")}
		if got := p.Home(); got != want {
			t.Errorf("%s: got %q, want %q", list, got, want)
		}
	}
	if got := (&Principal{Role: Admin}).Home(); got != DefaultNamespace {
		t.Errorf("admin: got %q", got)
	}
}
