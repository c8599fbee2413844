package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// Two of the six tasks of the example run with the license, one after the other, and four
// without: three run at once.
func TestTheExampleOfAlternativesTakesTheLicenseWhenItIsFree(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Coordinators: 1})
	clustertest.Must(t, c.AddWorker("w1", "--slots=8", "--resource=license=1", "--resource=cpu=4").Start(ctx))
	clustertest.Must(t, c.AwaitWorker(ctx, "w1", "up"))
	text, err := os.ReadFile("../../examples/alternatives.yaml")
	clustertest.Must(t, err)
	id := submitText(t, c, string(text))
	_, err = c.AwaitEnd(ctx, id, guard)
	clustertest.Must(t, err)
	a := c.Run(ctx, "result", id, "--lines")
	with, without := strings.Count(a.Stdout, "with the license"), strings.Count(a.Stdout, "with the free solver")
	if with == 0 || without == 0 || with+without != 6 {
		t.Errorf("got the results\n%s\nwant 6 of both kinds", a.Stdout)
	}
}
