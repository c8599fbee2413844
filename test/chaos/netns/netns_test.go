package netns

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A reachable host answers a malformed line of HTTP; an unreachable one is silent.
func TestOneDirectionOfALinkIsLostAndRestored(t *testing.T) {
	t.Parallel()
	if err := Available(t.Context()); err != nil {
		t.Skip(err)
	}
	n, err := New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"a", "b"} {
		if _, err := n.Add(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	reaches(t, n, true)
	must(t, n.Cut(t.Context(), "a", "b"))
	reaches(t, n, false)
	must(t, n.Heal(t.Context(), "a", "b"))
	reaches(t, n, true)
	must(t, n.Cut(t.Context(), "b", "a"))
	reaches(t, n, false)
	if got := received(t, n); got == 0 {
		t.Error("packets from a to b were lost, want only those from b to a")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// reaches dials from a to a closed port of b: a refusal has passed in both directions.
func reaches(t *testing.T, n *Network, want bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	limit := "1"
	if want {
		limit = "15"
	}
	dial := append(n.hosts["a"].Prefix(), "timeout", limit, "bash", "-c", "exec 3<>/dev/tcp/"+n.hosts["b"].IP+"/9")
	out, err := exec.CommandContext(ctx, dial[0], dial[1:]...).CombinedOutput()
	if refused := strings.Contains(string(out), "refused"); refused != want {
		t.Fatalf("a reaches b: %v, want %v (%v, %s)", refused, want, err, out)
	}
}

// received reports whether b receives packets that it answers while a does not get
// the answers: 1 or 0. A busy machine may send none within a try of one second.
func received(t *testing.T, n *Network) int {
	t.Helper()
	show := append(n.hosts["b"].Prefix(), "cat", "/proc/net/snmp")
	count := func() string {
		out, err := exec.CommandContext(t.Context(), show[0], show[1:]...).Output()
		must(t, err)
		return string(out)
	}
	before := count()
	dial := append(n.hosts["a"].Prefix(), "timeout", "1", "bash", "-c", "exec 3<>/dev/tcp/"+n.hosts["b"].IP+"/9")
	for range 15 {
		_ = exec.CommandContext(t.Context(), dial[0], dial[1:]...).Run() // it times out
		if count() != before {
			return 1
		}
	}
	return 0
}
