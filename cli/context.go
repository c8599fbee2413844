package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/internal/document"
)

func newContext(a *app) *cobra.Command {
	return newNoun("context", "List, choose and delete clusters you logged in to",
		"  dtaskctl context list\n  dtaskctl context use prod",
		newContextList(a), newContextUse(a), newContextShow(a), newContextDelete(a))
}

func newContextList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the contexts",
		Long:    "List the contexts: the clusters that you logged in to. The one in use has a star.",
		Example: "  dtaskctl context list\n  dtaskctl context list -o json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := loadContexts(a.getenv)
			if err != nil {
				return err
			}
			docs := make([]document.Context, 0, len(all.Contexts))
			t := show.NewTable("IN USE", "NAME", "CLUSTER", "USER", "ADDRESSES")
			for i := range all.Contexts {
				doc := all.document(&all.Contexts[i])
				docs = append(docs, doc)
				t.Row(star(doc.Current), doc.Name, doc.ClusterID, doc.User, strings.Join(doc.Addresses, ","))
			}
			return a.print(view{doc: document.Contexts{Contexts: docs}, text: func(p *show.Printer) { p.Table(t) }})
		},
	}
}

func star(current bool) string {
	if current {
		return "*"
	}
	return ""
}

func newContextUse(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "use NAME",
		Short:             "Choose the context of later commands",
		Long:              "Choose the context that commands use without --context, --addr and --socket.",
		Example:           "  dtaskctl context use prod",
		Args:              oneArg,
		ValidArgsFunction: a.completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := changeContexts(a.getenv, func(all *contexts) error {
				_, err := all.get(args[0])
				all.Current = args[0]
				return err
			})
			if err != nil {
				return err
			}
			return a.print(lines(all.document(all.find(args[0])), "context "+args[0]+" is in use"))
		},
	}
}

func newContextShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "show [NAME]",
		Short:             "Show a context",
		Long:              "Show a context, by default the one that commands use. It has no secret: the token is in a\nfile of its own.",
		Example:           "  dtaskctl context show\n  dtaskctl context show prod -o json",
		Args:              argCount(0, 1),
		ValidArgsFunction: a.completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			all, saved, err := a.namedContext(args)
			if err != nil {
				return err
			}
			doc := all.document(saved)
			return a.print(view{doc: doc, text: func(p *show.Printer) { p.Context(doc) }})
		},
	}
}

func newContextDelete(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "delete NAME",
		Short:             "Delete a context and its token",
		Long:              "Delete a context and its token from this machine. The token itself stays valid; dtaskctl\ntoken revoke ends it.",
		Example:           "  dtaskctl context delete prod",
		Args:              oneArg,
		ValidArgsFunction: a.completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			all, saved, err := a.namedContext(args)
			if err != nil {
				return err
			}
			return a.deleteContext(all, *saved)
		},
	}
}

// deleteContext deletes a context, and says how to end its token.
func (a *app) deleteContext(all *contexts, saved savedContext) error {
	doc := all.document(&saved)
	if _, err := changeContexts(a.getenv, func(all *contexts) error { return all.remove(saved.Name) }); err != nil {
		return err
	}
	if saved.ID != 0 {
		a.note("the token itself stays valid: an admin ends it with dtaskctl token revoke %d", saved.ID)
	}
	return a.print(lines(doc, "deleted context "+saved.Name))
}

// namedContext returns the context of an optional argument, or the one that commands use.
func (a *app) namedContext(args []string) (*contexts, *savedContext, error) {
	if len(args) > 0 {
		all, err := loadContexts(a.getenv)
		if err != nil {
			return nil, nil, err
		}
		saved, err := all.get(args[0])
		return all, saved, err
	}
	saved, all, err := a.savedContext()
	if err == nil && saved == nil {
		err = withHint(notFound("no context is in use"), "dtaskctl context list shows the contexts, and dtaskctl context use NAME chooses one")
	}
	return all, saved, err
}

// document describes a context.
func (c *contexts) document(saved *savedContext) document.Context {
	doc := document.Context{
		Name: saved.Name, Current: saved.Name == c.Current, ClusterID: saved.Cluster, Addresses: saved.Addresses,
		CAKeys: []string{}, User: saved.User, TokenFile: c.tokenPath(saved),
	}
	if saved.ID != 0 {
		doc.ID = fmt.Sprint(saved.ID)
	}
	doc.CAKeys = append(doc.CAKeys, saved.keyHashes()...)
	return doc
}

// completeContexts completes the name of a context.
func (a *app) completeContexts(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	all, err := loadContexts(a.getenv)
	if err != nil || len(args) > 0 {
		return nil, directive
	}
	var names []string
	for _, c := range all.Contexts {
		if strings.HasPrefix(c.Name, typed) {
			names = append(names, c.Name)
		}
	}
	return names, directive
}
