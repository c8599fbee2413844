package calendar

// Error is returned for an expression, a time or a schedule that is not valid.
type Error struct {
	Field  string // of [Config], in lower case: from, until, jitter …; empty for one value alone
	Index  int    // in a list
	Offset int    // in an expression, in characters from 0
	What   string // what is wrong
	Do     string // what to do about it
}

// Error returns what is wrong and what to do, separated by a semicolon.
func (e *Error) Error() string {
	text := e.What + "; " + e.Do
	if e.Field != "" {
		text = e.Field + ": " + text
	}
	return text
}
