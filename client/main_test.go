package client

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/dtask/dtask/test/leak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(leak.Patient{M: m})
}
