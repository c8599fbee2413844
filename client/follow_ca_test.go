package client

import (
	"crypto/x509"
	"slices"
	"testing"
	"time"
)

// A rotation adds a CA and then drops the old one. Coordinators take part in it within some
// seconds of each other.
func TestAClientFollowsARotationForwardsOnly(t *testing.T) {
	t.Parallel()
	began := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	ca := func(n int) *x509.Certificate { return newCA(t, testCluster, began.AddDate(n, 0, 0)).Cert }
	first, second, third := ca(1), ca(2), ca(3)
	for name, test := range map[string]struct {
		trusted, presented []*x509.Certificate
		want               bool
	}{
		"only the hash of a key is known": {nil, []*x509.Certificate{first}, true},
		"nothing is presented":            {[]*x509.Certificate{first}, nil, false},
		"the same":                        {[]*x509.Certificate{first}, []*x509.Certificate{first}, false},
		"one is added":                    {[]*x509.Certificate{first}, []*x509.Certificate{second, first}, true},
		"a coordinator lacks the new one": {[]*x509.Certificate{second, first}, []*x509.Certificate{first}, false},
		"the old one is dropped":          {[]*x509.Certificate{second, first}, []*x509.Certificate{second}, true},
		"a coordinator has both":          {[]*x509.Certificate{second}, []*x509.Certificate{first, second}, false},
		"both steps were missed":          {[]*x509.Certificate{first}, []*x509.Certificate{second}, true},
		"a coordinator has the old one":   {[]*x509.Certificate{second}, []*x509.Certificate{first}, false},
		"two rotations were missed":       {[]*x509.Certificate{second, first}, []*x509.Certificate{third}, true},
	} {
		for range 2 { // in either order
			if got := supersedes(test.presented, test.trusted); got != test.want {
				t.Errorf("%s: %t", name, got)
			}
			slices.Reverse(test.presented)
		}
	}
}
