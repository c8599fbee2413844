package main

import "regexp"

// A rule forbids words in some kinds of texts.
type rule struct {
	words   *regexp.Regexp
	where   kind
	except  *regexp.Regexp // matches what surrounds the words if they are allowed there
	product bool           // only texts of the product, not those of tests
	advice  string
}

const everywhere = comment | literal | prose

// rules lists forms that have a plain English equivalent. A rule is here only if the
// words are wrong nearly everywhere: what needs judgment is for the reviewer.
var rules = []rule{
	{words: word(`is none|are none`), where: everywhere, advice: "say missing, empty, unknown or invalid"},
	{words: word(`(?:says?|said|telling|tells?) so`), where: everywhere, advice: "name the action: reports, returns, logs"},
	{words: word(`(?:is|are|was|were|be) told`), where: everywhere, advice: "name the component that sends and what it sends"},
	{words: word(`is no (?:longer )?(?:such )?[a-z]+[;:,."]`), where: everywhere, except: regexp.MustCompile(`is no longer|[Tt]here is no`), advice: `say invalid, unknown or must be: invalid duration "5x"`},
	{words: word(`there is no [a-z]+ that`), where: everywhere, advice: "say unknown or missing"},
	{words: word(`[Ww]hoever|[Ww]homever`), where: everywhere, advice: "name the component"},
	{words: word(`[Aa]new|once more`), where: everywhere, advice: "write again"},
	{words: word(`for ever`), where: everywhere, advice: "write forever"},
	{words: word(`given up`), where: everywhere, advice: "write dropped, marked down, abandoned or released"},
	{words: word(`(?:is|are|be|named|set|written) there twice`), where: everywhere, advice: `write duplicate "x"`},
	{words: word(`from the begin`), where: everywhere, advice: "write from the start, or preallocated"},
	{words: word(`borne`), where: everywhere, advice: "write tolerated"},
	{words: word(`brought to (?:an|its|their) end`), where: everywhere, advice: "write finishes or completes"},
	{words: word(`(?:goes|go|went|going) on`), where: everywhere, except: regexp.MustCompile(`(?:goes|go) on (?:the|a|its|one|each|every|disk|stdout|stderr|top)\b`), advice: "write continues or resumes"},
	{words: word(`on (?:its|their) way`), where: everywhere, advice: "write in flight"},
	{words: word(`[Hh]and(?:s|ed|ing)? back|hands? it back|[Pp]ut(?:s|ting)? back`), where: everywhere, advice: "write release, return or requeue"},
	{words: word(`burn(?:s|t|ed|ing)? (?:a |no |its |the )?retr(?:y|ies)`), where: everywhere, advice: "write counts as a retry"},
	{words: word(`naive twins?|[Tt]wins?`), where: everywhere, advice: "write reference model"},
	{words: word(`carriers?|ballots?|registrars?|knotter`), where: comment | prose, advice: "use the field's term: multiplexed stream, digests, reconciler"},
	{words: word(`[Ff]olders?`), where: everywhere, advice: "write directory"},
	{words: word(`[Tt]ime-outs?|[Cc]lean-ups?`), where: everywhere, advice: "write timeout, cleanup"},
	{words: word(`[Hh]e|[Ss]he|[Hh]im|[Hh]is|himself`), where: comment | prose, advice: "write the user, the operator, you or they"},
	{words: word(`lately`), where: everywhere, advice: "write recently, or give the interval"},
	{words: word(`has (?:no )?room`), where: everywhere, advice: "write has capacity or has free space"},
	{words: word(`[Bb]ehaviou?rs?|[Cc]olou?r(?:s|ed)?|[Ll]icen[cs]es?|[Ff]avou?r(?:s|ed|ite)?|[Hh]onou?r(?:s|ed)?|[Nn]eighbou?rs?|[Aa]cknowledge?ments?|[Cc]atalog(?:ue)?s?|[A-Za-z]+i[sz](?:e|es|ed|ing|ation)|analy[sz]e[sd]?`), where: everywhere, except: american, advice: "use American spelling"},
	{words: word(`[Ff]ailed to [a-z]+`), where: literal, advice: "name what was done and why it failed: opening log: permission denied"},
	{words: regexp.MustCompile(`%\+v`), where: literal, product: true, advice: "print values that a user can read"},
	{words: word(`rpc error|strconv\.[A-Z][a-zA-Z]+`), where: literal, product: true, advice: "users must not see library texts"},
}

// american matches a spelling that is right in American English. The rule for
// spellings matches both, because most of them differ in one letter.
var american = regexp.MustCompile(`(?i)^(?:` +
	`behaviors?|colors?|colored|licenses?|favors?|favored|favorite|honors?|honored|neighbors?|acknowledgments?|catalogs?|analyze[sd]?|` +
	`.*iz(?:e|es|ed|ing|ation)|` +
	`.*(?:wis|rais|nois|ris|pris|mis|cis|vis|pois|guis|terpris|chandis|chis|lis|dis|tis)(?:e|es|ed|ing))$`)

func word(pattern string) *regexp.Regexp {
	return regexp.MustCompile(`\b(?:` + pattern + `)(?:\b|$|\s|\W)`)
}

// A finding is a place that a rule forbids.
type finding struct {
	line          int
	words, advice string
}

func findings(t text) []finding {
	if t.long {
		return []finding{{t.lineAt(0), "", "wrap at 100 columns"}}
	}
	var list []finding
	for _, r := range rules {
		if r.where&t.kind == 0 || r.product && t.test {
			continue
		}
		for _, at := range r.words.FindAllStringIndex(t.s, -1) {
			words := trim(t.s[at[0]:at[1]])
			if r.except != nil && (r.except.MatchString(words) || r.except.MatchString(t.s[max(0, at[0]-6):min(len(t.s), at[1]+12)])) {
				continue
			}
			list = append(list, finding{t.lineAt(at[0]), words, r.advice})
		}
	}
	return list
}
