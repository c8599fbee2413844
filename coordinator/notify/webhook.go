package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// maxResponseBody is how much of a response's body is read, in bytes, so that the
// connection can be reused. The content is ignored.
const maxResponseBody = 4 << 10

// clients are the HTTP clients of one term. They share no connections: those of the
// operator's webhooks may lead to addresses that jobs must not reach.
type clients struct {
	operator, jobs http.Client
}

func newClients(c *Config) *clients {
	return &clients{operator: newClient(c.Dial, c.Proxy), jobs: newClient(c.dialJob, nil)}
}

func newClient(dial Dialer, proxy func(*http.Request) (*url.URL, error)) http.Client {
	return http.Client{
		Transport: &http.Transport{
			Proxy: proxy, DialContext: dial, ForceAttemptHTTP2: true,
			MaxIdleConns: maxInFlight, MaxIdleConnsPerHost: 1, IdleConnTimeout: 30 * time.Second,
			MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// of returns the client for a message.
func (c *clients) of(m message) *http.Client {
	if m.ofJob {
		return &c.jobs
	}
	return &c.operator
}

func (c *clients) close() {
	c.operator.CloseIdleConnections()
	c.jobs.CloseIdleConnections()
}

// post sends a message to its URL.
func (d *deliverer) post(ctx context.Context, m message) result {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url, bytes.NewReader(m.body))
	if err != nil {
		return result{kind: resultFailed, reason: "invalid URL: " + withoutURL(err)}
	}
	stamp := strconv.FormatInt(d.cfg.Wall().UnixMilli()/1000, 10)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "dtask/"+d.cfg.Version)
	r.Header.Set("Webhook-Id", m.id)
	r.Header.Set("Webhook-Timestamp", stamp)
	if d.cfg.Hooks.Secret.key != nil {
		r.Header.Set("Webhook-Signature", d.cfg.Hooks.Secret.sign(m.id, stamp, m.body))
	}
	response, err := d.clients.of(m).Do(r)
	if private, ok := errors.AsType[*PrivateAddressError](err); ok {
		return result{kind: resultFailed, reason: private.Error()}
	}
	if err != nil {
		return result{kind: resultRetry, reason: withoutURL(err)}
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxResponseBody)) // only the status matters
	_ = response.Body.Close()
	return classify(response)
}

// classify returns the result that a response stands for.
func classify(r *http.Response) result {
	reason := fmt.Sprintf("HTTP status %d", r.StatusCode)
	switch code := r.StatusCode; {
	case code >= 200 && code < 300:
		return result{kind: resultDelivered}
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests:
		return result{kind: resultRetry, reason: reason, retryAfter: parseRetryAfter(r)}
	case code >= 400 && code < 500:
		return result{kind: resultFailed, reason: reason}
	default: // redirects are not followed: the signature is for one host
		return result{kind: resultRetry, reason: reason, retryAfter: parseRetryAfter(r)}
	}
}

// parseRetryAfter parses Retry-After in seconds. It ignores dates and invalid
// values.
func parseRetryAfter(r *http.Response) time.Duration {
	seconds, err := strconv.ParseUint(r.Header.Get("Retry-After"), 10, 20)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second //nolint:gosec // at most 2^20
}

// withoutURL formats an error without its URL, which may contain a secret.
func withoutURL(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return err.Error()
}
