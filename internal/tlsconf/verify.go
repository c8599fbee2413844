package tlsconf

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

// DateError reports that a certificate is not valid at the time of a clock.
type DateError struct {
	Subject             string // such as "replica n1"
	NotBefore, NotAfter time.Time
	Now                 time.Time // by this machine's clock
}

// Error implements error.
func (e *DateError) Error() string {
	off := formatDuration(e.Now.Sub(e.NotAfter))
	what := fmt.Sprintf("expired %s ago; check this machine's clock, which is at least %s ahead unless the certificate must be renewed", off, off)
	if e.Now.Before(e.NotBefore) {
		off = formatDuration(e.NotBefore.Sub(e.Now))
		what = fmt.Sprintf("becomes valid in %s; check this machine's clock, which is at least %s behind unless that of the issuer was ahead", off, off)
	}
	return fmt.Sprintf("the certificate of %s is valid from %s to %s, and this machine's clock shows %s: it %s",
		e.Subject, formatTime(e.NotBefore), formatTime(e.NotAfter), formatTime(e.Now), what)
}

// formatDuration returns a duration in whole days, or with seconds if it has less than two.
func formatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day {
		return fmt.Sprintf("%d days", d/day)
	}
	return d.Round(time.Second).String()
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// checkDates returns a *DateError if a certificate is not valid at a time.
func checkDates(subject string, cert *x509.Certificate, now time.Time) *DateError {
	if now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		return &DateError{Subject: subject, NotBefore: cert.NotBefore, NotAfter: cert.NotAfter, Now: now}
	}
	return nil
}

// verifyChain verifies that a chain, whose first certificate is the peer's, ends in one
// of the roots, and returns the chain with its root. It ignores all dates:
// callers that care for them check the result.
func verifyChain(presented, roots []*x509.Certificate, usage x509.ExtKeyUsage) ([]*x509.Certificate, error) {
	if len(presented) == 0 {
		return nil, errors.New("the peer has no certificate")
	}
	// Verify wants one time at which all certificates are valid, and there need not be
	// one. Copies that are always valid leave everything else to it.
	originals := make(map[string]*x509.Certificate)
	undated := func(cert *x509.Certificate) *x509.Certificate {
		originals[string(cert.Raw)] = cert
		c := *cert
		c.NotBefore, c.NotAfter = time.Unix(0, 0), time.Unix(1<<40, 0)
		return &c
	}
	opts := x509.VerifyOptions{
		Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(),
		CurrentTime: time.Unix(1, 0), KeyUsages: []x509.ExtKeyUsage{usage},
	}
	anchors := Anchors(roots)
	for _, root := range anchors {
		opts.Roots.AddCert(undated(root))
	}
	for _, cert := range presented[1:] {
		// A replica sends its CA, too. As an intermediate it would only cost another check of
		// the same signature.
		if !slices.ContainsFunc(anchors, cert.Equal) {
			opts.Intermediates.AddCert(undated(cert))
		}
	}
	chains, err := undated(presented[0]).Verify(opts)
	if err != nil {
		return nil, err
	}
	chain := chains[0]
	for i, cert := range chain {
		chain[i] = originals[string(cert.Raw)]
	}
	return chain, nil
}

// chainDates returns a *DateError for the first certificate of a verified chain that is
// not valid at a time; nil if all are.
func chainDates(subject string, chain []*x509.Certificate, now time.Time) *DateError {
	for i, cert := range chain {
		if i > 0 {
			subject = "the CA of " + subject
		}
		if err := checkDates(subject, cert, now); err != nil {
			return err
		}
	}
	return nil
}

// verifyReplica verifies that a connection's peer is a replica with a certificate of one
// of the roots. It ignores dates.
func verifyReplica(state *tls.ConnectionState, roots []*x509.Certificate, usage x509.ExtKeyUsage) (clusterID, serverID string, chain []*x509.Certificate, err error) {
	if len(state.PeerCertificates) == 0 {
		return "", "", nil, errors.New("the peer has no certificate, and must be a replica")
	}
	if clusterID, serverID, err = PeerID(state.PeerCertificates[0]); err != nil {
		return "", "", nil, fmt.Errorf("peer refused: %w", err)
	}
	if chain, err = verifyChain(state.PeerCertificates, roots, usage); err != nil {
		return "", "", nil, fmt.Errorf("certificate of replica %s refused: it was not issued by a CA in %s: %w", serverID, CAFile, err)
	}
	return clusterID, serverID, chain, nil
}
