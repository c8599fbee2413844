package access

import (
	"crypto/sha256"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// joinWorker lets a worker with a new key join.
func (f *fixture) joinWorker(join *dtaskv1.JoinToken, secret []byte, name string, replace bool) error {
	f.t.Helper()
	key := tlsconf.KeyHash(workerCert(f.t))
	_, err := f.Join(f.t.Context(), &dtaskv1.JoinRequest{
		JoinToken: join.GetId(), JoinSecret: secret, Purpose: "worker", Name: name, Key: string(key[:8]), PublicKeyHash: key[:], Replace: replace,
	})
	return err
}

func TestAWorkerIsReplacedOnlyByOneThatServesItsNamespaces(t *testing.T) {
	t.Parallel()
	f := setup(t)
	joins := make(map[string]func(name string, replace bool) error)
	for name, namespaces := range map[string][]string{"ml": {"ml"}, "etl": {"etl"}, "both": {"etl", "ml"}, "all": nil} {
		join, secret := f.newJoinToken(&dtaskv1.CreateJoinTokenRequest{Purpose: "worker", TtlMs: time.Hour.Milliseconds(), Key: name, Namespaces: namespaces})
		joins[name] = func(name string, replace bool) error { return f.joinWorker(join, secret, name, replace) }
	}
	must(t, joins["ml"]("w1", false))
	err := joins["etl"]("w1", true)
	if refused, ok := errors.AsType[*JoinError](err); !ok || !strings.Contains(refused.Reason, "may not replace the worker w1") {
		t.Errorf("got %v", err)
	}
	for _, wider := range []string{"ml", "both", "all"} {
		must(t, joins[wider]("w1", true))
	}
	if err := joins["both"]("w1", true); err == nil {
		t.Error("a worker of all namespaces was replaced by one of two")
	}
	must(t, joins["etl"]("w2", true)) // a free name
}

func TestWrongSecretsKeepNobodyFromJoining(t *testing.T) {
	t.Parallel()
	f := setup(t)
	join, secret := f.newJoinToken(&dtaskv1.CreateJoinTokenRequest{Purpose: "worker", TtlMs: time.Hour.Milliseconds(), Key: "j"})
	for range 2 * joinBurst {
		if err := f.joinWorkerWith(join, []byte("wrong")); err == nil {
			t.Fatal("a wrong secret was accepted")
		}
	}
	must(t, f.joinWorkerWith(join, secret))
}

// joinWorkerWith joins with a fixed key: making one costs more than a call.
func (f *fixture) joinWorkerWith(join *dtaskv1.JoinToken, secret []byte) error {
	key := sha256.Sum256(nil)
	_, err := f.Join(f.t.Context(), &dtaskv1.JoinRequest{
		JoinToken: join.GetId(), JoinSecret: secret, Purpose: "worker", Name: "w1", Key: "k", PublicKeyHash: key[:],
	})
	return err
}
