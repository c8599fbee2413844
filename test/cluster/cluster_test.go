package cluster

import "testing"

func TestTheLogStoreOfAClusterIsThatOfItsCoordinators(t *testing.T) { // not parallel: it sets a variable
	for _, c := range []struct {
		name, variable string
		flags, first   []string // of all coordinators, and further ones of the first
		want           string
	}{
		{"neither flag nor variable", "", nil, nil, "bolt"},
		{"variable", "wal", nil, nil, "wal"},
		{"flag", "", []string{"--log-store", "wal"}, nil, "wal"},
		{"flag with equals sign", "", []string{"--log-store=wal"}, nil, "wal"},
		{"flag over variable", "wal", []string{"--log-store", "bolt"}, nil, "bolt"},
		{"another one at one coordinator", "", nil, []string{"--log-store", "wal"}, "mixed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(StoreVariable, c.variable)
			made, err := New(t.Context(), Config{Dir: t.TempDir(), Programs: Programs{Dir: "unused"}, CoordinatorFlags: c.flags})
			if err != nil {
				t.Fatal(err)
			}
			made.Coordinators()[0].AddArgs(c.first...)
			if got := made.LogStore(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
