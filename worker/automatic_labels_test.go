package worker

import (
	"strings"
	"testing"
)

func TestLabelsThatWorkersHaveByThemselvesCannotBeSet(t *testing.T) {
	t.Parallel()
	for _, key := range automaticLabels {
		_, err := New(Config{Join: []string{"127.0.0.1:1"}, Name: "w1", Slots: 1, WorkDir: t.TempDir(), Labels: map[string]string{key: "x"}})
		if err == nil || !strings.Contains(err.Error(), `invalid --label "`+key+`": workers have the labels worker, host, os, arch, isolation by themselves`) {
			t.Errorf("%s: got %v", key, err)
		}
	}
}
