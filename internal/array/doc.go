// Package array defines what all components must agree on about arrays: how
// many tasks an array has, how ranges of indexes are written, and what the
// expressions in its template expand to.
//
// An expression about an item is ${{ index }}, ${{ item }} or ${{ item.FIELD }}.
// In JSON, an expression that is a whole string is replaced with the item's JSON
// value, so that numbers stay numbers; elsewhere it is replaced with the item's
// text. $${{ stands for the text ${{.
//
// The expressions ${{ scheduled.at }}, ${{ scheduled.previous }} and
// ${{ scheduled.date }} are about the run of a schedule. Tasks without an array
// may have them, too.
//
// All functions are safe for concurrent use.
package array
