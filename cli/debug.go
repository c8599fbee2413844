package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

// maxProfile is the longest CPU profile that a coordinator makes.
const maxProfile = 30 * time.Second

func newDebug(a *app) *cobra.Command {
	var (
		out     string
		profile time.Duration
	)
	cmd := &cobra.Command{
		Use:   "debug",
		Short: "Save what is needed to diagnose the cluster",
		Long: `Save an archive with what each coordinator knows about itself: its state and settings,
metrics, goroutines, heap, a CPU profile, and the end of its log. It works without a leader:
each coordinator is asked by itself, and the archive says which ones did not answer. Only
admins may.

The archive has no payloads, results, tokens, join strings or keys, and no more of a URL
than its host. It has names of jobs, workers and machines, and addresses. Only you can read
it. tar xzf unpacks it, and go tool pprof reads the profiles.`,
		Example: `  dtaskctl debug
  dtaskctl debug --out incident.tar.gz --profile 0s`,
		Args: noArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			file := outFile{path: out}
			if file.path == "" {
				file.path = "dtask-debug-" + a.now().UTC().Format("20060102T150405Z") + ".tar.gz"
			}
			if err := file.open(a); err != nil {
				return view{}, err
			}
			defer file.discard()
			if profile > 0 {
				a.note("profiling each coordinator for %s", show.Duration(profile))
			}
			replicas, err := c.Debug(ctx, profile)
			if err != nil {
				return view{}, err
			}
			cluster, err := c.ClusterStatus(ctx)
			if err != nil {
				cluster = nil // the bundle says what is known
			}
			bundle := newDebugBundle(replicas, cluster, a.now())
			if err := file.keep(bundle.write); err != nil {
				return view{}, err
			}
			return a.savedDebug(file.path, bundle), nil
		}),
	}
	fl := cmd.Flags()
	fl.StringVar(&out, "out", "", "`FILE` to write (default dtask-debug-TIME.tar.gz)")
	bind(fl, &profile, "profile", "5s", "`DURATION` of the CPU profile (0s = none)", duration(0, maxProfile))
	return cmd
}

// savedDebug is the view of a bundle that was written.
func (a *app) savedDebug(path string, b *debugBundle) view {
	text := []string{fmt.Sprintf("saved %s, %s", show.Clean(path), show.Size(b.size))}
	for _, r := range b.manifest.Replicas {
		name := show.Clean(r.ID)
		if name == "" {
			name = show.Clean(r.Address)
		}
		if r.Error == nil {
			text = append(text, fmt.Sprintf("%s: %s", name, show.Plural(len(r.Files), "file")))
		} else {
			text = append(text, fmt.Sprintf("%s did not answer: %s", name, show.Clean(*r.Error)))
		}
	}
	return lines(document.SavedDebug{File: path, Bytes: b.size, Replicas: b.manifest.Replicas}, text...)
}
