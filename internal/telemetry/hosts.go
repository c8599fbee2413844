package telemetry

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// AllowHosts refuses requests whose Host header has a name that is neither localhost nor
// among names. A web page can make the name of its own host resolve to an address of this
// machine, and its browser then lets it read what the port serves; addresses can't be used
// like that. Probes of /healthz pass under any name: it says nothing. names is called for
// each request; nil = no names.
func AllowHosts(next http.Handler, names func() []string) http.Handler {
	advice := "use an address of this machine"
	if names == nil {
		names = func() []string { return nil }
	} else {
		advice += ", or add the name with --http-hosts"
	}
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		host := hostName(q.Host)
		same := func(name string) bool { return strings.EqualFold(name, host) }
		if _, err := netip.ParseAddr(host); err == nil || host == "" || same("localhost") || q.URL.Path == healthPath || slices.ContainsFunc(names(), same) {
			next.ServeHTTP(w, q)
			return
		}
		http.Error(w, fmt.Sprintf("unknown host %q: %s", host, advice), http.StatusMisdirectedRequest)
	})
}

// hostName returns the name or address in a Host header, without port, brackets and the dot
// of the root. A client of HTTP/1.0 may send none; browsers always send one.
func hostName(header string) string {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(header, "["), "]")
	}
	return strings.TrimSuffix(host, ".")
}
