package fsm

import "strings"

// A namespace separates the jobs of teams. It is a field of a job's header; an empty one
// is the default namespace. The state machine keeps keys and reusable results of different
// namespaces apart, and decides nothing else by it: package coordinator/api decides who may
// see a job, and the scheduler which worker may run it.

// DefaultNamespace is the one of jobs that name none. Package internal/auth has the same.
const DefaultNamespace = "default"

// scopeMark begins the keys of all namespaces but the default one, and ends the name of
// the namespace in them. Users' keys don't begin with it: see IsScoped.
const scopeMark = "\x00"

// ScopedKey returns the form in which the state has an idempotency key of a namespace; an
// empty namespace is the default one. Keys of the default namespace stay as they are.
func ScopedKey(namespace, key string) string {
	if namespace == "" || namespace == DefaultNamespace {
		return key
	}
	return scopeMark + namespace + scopeMark + key
}

// PlainKey returns the key that ScopedKey was called with.
func PlainKey(scoped string) string {
	if !IsScoped(scoped) {
		return scoped
	}
	_, key, _ := strings.Cut(scoped[len(scopeMark):], scopeMark)
	return key
}

// IsScoped reports whether a key is of a namespace that is not the default one. A user's
// key of this form must be refused: it would be one of another namespace.
func IsScoped(key string) bool { return strings.HasPrefix(key, scopeMark) }
