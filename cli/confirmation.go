package cli

import "github.com/spf13/pflag"

// A confirmation is the flags of a command that changes what filters select: the user
// confirms the change on a terminal, or in advance.
type confirmation struct {
	yes    bool
	dryRun bool
}

func (c *confirmation) bind(fl *pflag.FlagSet) {
	fl.BoolVar(&c.yes, "yes", false, "no confirmation")
	fl.BoolVar(&c.dryRun, "dry-run", false, "print what would be changed without changing it")
}

// ask asks the user whether to make a change such as "purge 3 dead letters", unless the
// flags answer that. details, if any, prints what the user must know to answer.
func (c *confirmation) ask(o *output, change string, details func()) (yes bool, err error) {
	if c.yes || c.dryRun {
		return true, nil
	}
	if !isTerminal(o.in) {
		return false, usagef("stdin is not a terminal; use --yes to %s, or --dry-run", change)
	}
	if details != nil {
		details()
	}
	return o.ask(change + "?")
}
