package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/dtask/dtask/coordinator/api"
	"github.com/dtask/dtask/coordinator/notify"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/loopback"
	"github.com/dtask/dtask/spec"
)

// maxSecretFile bounds Config.WebhookSecretFile, in bytes.
const maxSecretFile = 4 << 10

// notificationHooks reads the settings of webhooks and commands. Its errors, joined,
// name the flags.
func (c *Config) notificationHooks() (notify.Hooks, error) {
	h := notify.Hooks{
		DeadLetterWebhook: c.DeadLetterWebhook,
		DeadLetterCommand: c.DeadLetterCommand,
	}
	var errs []error
	if c.DeadLetterWebhook != "" {
		if err := spec.CheckWebhook(c.DeadLetterWebhook); err != nil {
			errs = append(errs, fmt.Errorf("--dead-letter-webhook: %w", err))
		}
	}
	if c.DeadLetterCommand != "" {
		if err := checkExecutable(c.DeadLetterCommand); err != nil {
			errs = append(errs, fmt.Errorf("--dead-letter-command: %w", err))
		}
	}
	if c.WebhookSecretFile != "" {
		secret, err := readSecret(c.WebhookSecretFile)
		if err != nil {
			errs = append(errs, fmt.Errorf("--webhook-secret-file: %w", err))
		}
		h.Secret = secret
	}
	return h, errors.Join(errs...)
}

// webhookAddresses returns which addresses the webhooks of jobs may reach.
func (c *Config) webhookAddresses() notify.AddressPolicy {
	allowed := slices.Clone(c.WebhookAllow)
	if loopback.Is(c.Listen) {
		allowed = append(allowed, loopback.Prefixes()...)
	}
	return notify.AddressPolicy{Allowed: allowed}
}

// checkExecutable refuses a path that could not be run, or not from another working
// directory.
func checkExecutable(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("invalid path %q: must be absolute", path)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err //nolint:wrapcheck // it names the path
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("%s is not executable; run chmod +x", path)
	}
	return nil
}

func readSecret(path string) (notify.Secret, error) {
	info, err := os.Stat(path)
	if err != nil {
		return notify.Secret{}, err //nolint:wrapcheck // it names the path
	}
	if info.Size() > maxSecretFile {
		return notify.Secret{}, fmt.Errorf("%s is too long for a secret: must be at most %d bytes", path, maxSecretFile)
	}
	text, err := os.ReadFile(path) //nolint:gosec // the operator's own setting
	if err != nil {
		return notify.Secret{}, err //nolint:wrapcheck // it names the path
	}
	secret, err := notify.ParseSecret(string(text))
	if err != nil {
		return notify.Secret{}, fmt.Errorf("%s: %w", path, err)
	}
	return secret, nil
}

// wakeChannel returns a channel that gets a token when notifications were committed,
// and the function that puts it there without blocking.
func wakeChannel() (wake chan struct{}, committed func()) {
	wake = make(chan struct{}, 1)
	return wake, func() {
		select {
		case wake <- struct{}{}:
		default: // a token is enough
		}
	}
}

// notifier delivers notifications while this replica leads.
type notifier struct {
	machine   *fsm.Machine
	hooks     notify.Hooks
	addresses notify.AddressPolicy
	version   string
	wall      func() time.Time
	log       *slog.Logger
	totals    notify.Totals
}

// runBeside runs the sequencer and delivers notifications beside it. Both have
// stopped when it returns.
func (n *notifier) runBeside(ctx context.Context, s *sequencer.Sequencer, wake <-chan struct{}) error {
	delivering, stop := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	running.Go(func() { n.deliver(delivering, s, wake) })
	err := s.Run(ctx)
	stop(err)
	running.Wait()
	return err
}

// deliver starts once the term is served: a delivery cannot be recorded before.
func (n *notifier) deliver(ctx context.Context, s *sequencer.Sequencer, wake <-chan struct{}) {
	select {
	case <-s.Ready():
	case <-ctx.Done():
		return
	}
	// It returns only when ctx is done, and the term reports why.
	_ = notify.Run(ctx, notify.Config{
		Machine: n.machine, Recorder: s, Job: api.JobView, DeadLetter: api.DeadLetterView, Wake: wake,
		Hooks: n.hooks, Addresses: n.addresses, Version: n.version,
		Logger: n.log.With("term", s.Term()), Totals: &n.totals, Seed: randomSeed(), Wall: n.wall,
	})
}
