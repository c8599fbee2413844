package sequencer

import (
	"strings"
	"testing"
	"time"
)

func TestALongLivenessTimeoutHasALongLease(t *testing.T) {
	t.Parallel()
	cfg := testConfig()
	cfg.LivenessTimeout = 3 * time.Minute // workers send a heartbeat once a minute
	if _, err := New(cfg); err != nil {
		t.Errorf("New returned %v", err)
	}
}

func TestAnInvalidConfigReportsAllProblems(t *testing.T) {
	t.Parallel()
	_, err := New(Config{LivenessTimeout: time.Second, Lease: time.Millisecond, InFlight: 65, EntryBytes: 1})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"Log, Machine", "Term", "NewClusterID", "InFlight", "EntryBytes", "Lease"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not mention %s", err, want)
		}
	}
}
