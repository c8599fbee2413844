package coordinator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/dtask/dtask/coordinator/api"
	"github.com/dtask/dtask/coordinator/notify"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/spec"
)

// maxSecretFile bounds what is read of Config.WebhookSecretFile, in bytes: more
// is no secret.
const maxSecretFile = 4 << 10

// noticeHooks reads the settings about webhooks and commands; its errors, joined,
// name the flags.
func (c *Config) noticeHooks() (notify.Hooks, error) {
	h := notify.Hooks{DeadLetterWebhook: c.DeadLetterWebhook, DeadLetterCommand: c.DeadLetterCommand}
	var errs []error
	if c.DeadLetterWebhook != "" {
		if err := spec.CheckWebhook(c.DeadLetterWebhook); err != nil {
			errs = append(errs, fmt.Errorf("--dead-letter-webhook: %w", err))
		}
	}
	if c.DeadLetterCommand != "" {
		if err := executable(c.DeadLetterCommand); err != nil {
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

// executable refuses what could not be run from another folder, or at all.
func executable(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%q is no absolute path; begin it with /", path)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err //nolint:wrapcheck // it names the path
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("%s is no executable file; chmod +x it", path)
	}
	return nil
}

func readSecret(path string) (notify.Secret, error) {
	info, err := os.Stat(path)
	if err != nil {
		return notify.Secret{}, err //nolint:wrapcheck // it names the path
	}
	if info.Size() > maxSecretFile {
		return notify.Secret{}, fmt.Errorf("%s is too long for a secret", path)
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

// noticing gives a channel on which a token says that notices were committed, and
// the function that puts it there without ever waiting.
func noticing() (wake chan struct{}, noticed func()) {
	wake = make(chan struct{}, 1)
	return wake, func() {
		select {
		case wake <- struct{}{}:
		default: // there is one already
		}
	}
}

// leadAndTell runs the sequencer, and beside it whoever tells others what
// happened; both have ended when it returns.
func (r *replica) leadAndTell(ctx context.Context, s *sequencer.Sequencer, wake <-chan struct{}) error {
	telling, stop := context.WithCancelCause(ctx)
	var teller sync.WaitGroup
	teller.Go(func() { r.tell(telling, s, wake) })
	err := s.Run(ctx)
	stop(err)
	teller.Wait()
	return err
}

// tell begins once the term is served: until then nothing can be recorded.
func (r *replica) tell(ctx context.Context, s *sequencer.Sequencer, wake <-chan struct{}) {
	select {
	case <-s.Ready():
	case <-ctx.Done():
		return
	}
	// It ends with its context, and only so: the term has said why.
	_ = notify.Run(ctx, notify.Config{
		Machine: r.machine, Recorder: s, Job: api.JobView, DeadLetter: api.DeadLetterView, Wake: wake, Hooks: r.noticeHooks, Version: r.cfg.Version,
		Logger: r.log.With("term", s.Term()), Totals: &r.told, Seed: randomSeed(), Wall: r.cfg.Wall,
	})
}
