package telemetry

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestEveryProgramShowsItsVersionProcessAndRuntime(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	Handler(NewRegistry("v1"), slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	for _, part := range []string{`dtask_build_info{goversion="go`, `version="v1"} 1`, "\ngo_goroutines ", "\nprocess_start_time_seconds "} {
		if !strings.Contains(w.Body.String(), part) {
			t.Errorf("missing: %s", part)
		}
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := Handler(NewRegistry("v1"), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, l, h, slog.New(slog.DiscardHandler)) }()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || !strings.Contains(string(body), `"ok"`) {
		t.Errorf("got %s, %v", body, err)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestServeReturnsWhenTheListenerFails(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	h := Handler(NewRegistry("v1"), slog.New(slog.DiscardHandler))
	if err := Serve(t.Context(), l, h, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("got no error")
	}
}
