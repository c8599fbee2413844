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

// transport returns the HTTP transport of one term.
func (d *deliverer) transport() *http.Transport {
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: d.cfg.Dial, ForceAttemptHTTP2: true,
		MaxIdleConns: maxInFlight, MaxIdleConnsPerHost: 1, IdleConnTimeout: 30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
	}
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
	response, err := d.client.Do(r)
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
