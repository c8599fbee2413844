package loopback

import "testing"

func TestOnlyLocalhostAndLoopbackAddressesAreLoopback(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"127.0.0.1:7460": true, "127.9.8.7:1": true, "[::1]:7460": true, "localhost:7460": true,
		"10.0.0.1:7460": false, "0.0.0.0:7460": false, "[::]:7460": false, "localhost.example.org:1": false,
		"db1:7460": false, ":7460": false, "127.0.0.1": false, "": false,
	} {
		if got := Is(address); got != want {
			t.Errorf("%q: got %v, want %v", address, got, want)
		}
	}
}
