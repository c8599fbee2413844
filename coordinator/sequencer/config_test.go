package sequencer

import (
	"strings"
	"testing"
	"time"
)

func TestALongSilenceHasALongLease(t *testing.T) {
	t.Parallel()
	cfg := testConfig()
	cfg.LivenessTimeout = 3 * time.Minute // workers beat once a minute
	if _, err := New(cfg); err != nil {
		t.Errorf("no term can begin: %v", err)
	}
}

func TestAConfigThatCannotWorkIsRefusedWhole(t *testing.T) {
	t.Parallel()
	_, err := New(Config{LivenessTimeout: time.Second, Lease: time.Millisecond, InFlight: 65, EntryBytes: 1})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"Log, Machine", "Term", "NewClusterID", "InFlight", "EntryBytes", "Lease"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not speak of %s", err, want)
		}
	}
}
