package fsm

import "testing"

func TestKeysOfDifferentNamespacesDiffer(t *testing.T) {
	t.Parallel()
	seen := make(map[string]string)
	for _, namespace := range []string{"", "etl", "et"} {
		for _, key := range []string{"k", "l-k", "etl", "a\x00b", ""} {
			scoped := ScopedKey(namespace, key)
			if other, twice := seen[scoped]; twice {
				t.Errorf("key %q of %q is that of %q", key, namespace, other)
			}
			seen[scoped] = namespace
			if got := PlainKey(scoped); got != key {
				t.Errorf("key %q of %q: read back as %q", key, namespace, got)
			}
			if IsScoped(scoped) != (namespace != "") {
				t.Errorf("key %q of %q: scoped = %v", key, namespace, IsScoped(scoped))
			}
		}
	}
	if got := ScopedKey("default", "k"); got != "k" {
		t.Errorf("the default namespace: got %q, want the key as it is", got)
	}
}
