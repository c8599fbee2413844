// Package array is what all who handle arrays must agree on: how many tasks an
// array has, how indexes are written, and what the expressions in its template
// stand for.
//
// An expression is ${{ index }}, ${{ item }} or ${{ item.FIELD }}. In JSON an
// expression that is a whole text is replaced with the item's own form, so that
// numbers stay numbers; anywhere else with its text. $${{ is the text ${{.
//
// The package keeps nothing and starts nothing; its functions are safe for
// concurrent use.
package array
