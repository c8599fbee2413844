package chaos

import (
	"os"
	"testing"

	"github.com/dtask/dtask/test/cluster/clustertest"
)

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m)) }
