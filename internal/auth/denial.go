package auth

// Denial is why a call was refused because of its caller; a label of metrics.
type Denial uint8

// The reasons.
const (
	DenialOther        Denial = iota // a limit or a state of the cluster that no other caller would change
	DenialNoCredential               // the caller has none, and the call needs one
	DenialCredential                 // it is unknown, has expired, was revoked, or is of another kind
	DenialJoinString                 // it does not admit the caller
	DenialRole                       // the role may not call the method
	DenialScope                      // the call is about what is not the caller's: a namespace, a job of another owner, a worker's name
	DenialCount
)

// String returns the label.
func (d Denial) String() string {
	return [DenialCount]string{"other", "no_credential", "credential", "join_string", "role", "scope"}[d]
}
