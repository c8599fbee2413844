package clustertest

import (
	"strings"
	"testing"
	"time"
)

func TestAFailoverBeyondTheLimitFails(t *testing.T) {
	t.Parallel()
	if err := WithinFailoverLimit("kill", time.Second, FailoverLimit); err != nil {
		t.Errorf("within the limit: %v", err)
	}
	err := WithinFailoverLimit("kill", time.Second, FailoverLimit+time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "kill: number 2 took 30.001s") {
		t.Errorf("beyond the limit: got %v", err)
	}
}
