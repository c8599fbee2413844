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

// maxAnswer is how much of an answer's body is read, so that its connection can
// be used again; nothing in it matters.
const maxAnswer = 4 << 10

// transport makes connections for one term.
func (d *deliverer) transport() *http.Transport {
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: d.cfg.Dial, ForceAttemptHTTP2: true,
		MaxIdleConns: maxOnTheirWay, MaxIdleConnsPerHost: 1, IdleConnTimeout: 30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
	}
}

// post sends a message to its URL.
func (d *deliverer) post(ctx context.Context, m message) result {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url, bytes.NewReader(m.body))
	if err != nil {
		return result{verdict: hopeless, why: "its URL is none: " + reason(err)}
	}
	stamp := strconv.FormatInt(d.cfg.Wall().UnixMilli()/1000, 10)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "dtask/"+d.cfg.Version)
	r.Header.Set("Webhook-Id", m.id)
	r.Header.Set("Webhook-Timestamp", stamp)
	if d.cfg.Hooks.Secret.key != nil {
		r.Header.Set("Webhook-Signature", d.cfg.Hooks.Secret.sign(m.id, stamp, m.body))
	}
	answer, err := d.client.Do(r)
	if err != nil {
		return result{verdict: again, why: reason(err)}
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxAnswer)) // the status has said it all
	_ = answer.Body.Close()
	return judge(answer)
}

// judge says what an answer means.
func judge(a *http.Response) result {
	why := fmt.Sprintf("the receiver answered %d", a.StatusCode)
	switch code := a.StatusCode; {
	case code >= 200 && code < 300:
		return result{verdict: delivered}
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests:
		return result{verdict: again, why: why, after: retryAfter(a)}
	case code >= 400 && code < 500:
		return result{verdict: hopeless, why: why}
	default: // redirects are not followed: what is signed for one host is not for another
		return result{verdict: again, why: why, after: retryAfter(a)}
	}
}

// retryAfter reads the header Retry-After in seconds; the other form of it, and
// what makes no sense, is no wish.
func retryAfter(a *http.Response) time.Duration {
	seconds, err := strconv.ParseUint(a.Header.Get("Retry-After"), 10, 20)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second //nolint:gosec // at most 2^20
}

// reason is an error without the URL, whose path or query may be a secret.
func reason(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return err.Error()
}
