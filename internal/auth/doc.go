// Package auth has the rules of access that coordinators, workers and clients share:
// roles, who may call which method, and the text forms of tokens and join strings. It is
// pure: it reads no clock, file or network. Package fsm stores the identities, and
// coordinator/access decides by them.
//
// Access is denied by default: a method without a row in the table of methods can be
// called by nobody.
package auth
