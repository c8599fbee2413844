package clustertest

import "testing"

func TestOddSeedsHaveTLSUnlessTheVariableDecides(t *testing.T) {
	for _, c := range []struct {
		variable  string
		even, odd bool
	}{{"", false, true}, {"1", true, true}, {"0", false, false}} {
		t.Setenv(TLSVariable, c.variable)
		if even, odd := TLSOf(t, 6), TLSOf(t, 7); even != c.even || odd != c.odd {
			t.Errorf("%s=%s: seed 6 has TLS: %t, seed 7: %t, want %t and %t", TLSVariable, c.variable, even, odd, c.even, c.odd)
		}
	}
}
