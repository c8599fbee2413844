//go:build linux

package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dtask/dtask/internal/tlsconf"
	"github.com/dtask/dtask/test/chaos/netns"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// scannerVariable names the environment variable with the path of sslyze.
const scannerVariable = "DTASK_SSLYZE"

// A finding is what sslyze reports about one server, as far as it is checked.
type finding struct {
	Connectivity string `json:"connectivity_status"`
	Error        string `json:"connectivity_error_trace"`
	Location     struct {
		Hostname string `json:"hostname"`
		Port     int    `json:"port"`
	} `json:"server_location"`
	Result map[string]struct {
		Status string          `json:"status"`
		Error  string          `json:"error_trace"`
		Result json.RawMessage `json:"result"`
	} `json:"scan_result"`
}

// A suite is a version of TLS and what the server accepts in it.
type suite struct {
	Supported bool `json:"is_tls_version_supported"`
	Accepted  []struct {
		Suite struct {
			Name    string `json:"name"`
			KeySize int    `json:"key_size"`
			Openssl string `json:"openssl_name"`
		} `json:"cipher_suite"`
	} `json:"accepted_cipher_suites"`
}

// A scanner that does not belong to dtask finds on both ports of a coordinator what
// docs/security.md states: TLS 1.3 only, no resumption, no weak curve, and a certificate
// that the CA of the cluster has issued, sent with that CA.
func TestAScannerFindsOnlyWhatIsDocumented(t *testing.T) {
	scanner := os.Getenv(scannerVariable)
	if scanner == "" {
		t.Skip("make tls-scan runs this")
	}
	if err := netns.Available(t.Context()); err != nil {
		t.Fatalf("nothing is scanned: %v", err)
	}
	s := newSite(t, "m1", "you")
	m1, you := s.machines["m1"], s.machines["you"]
	s.await(m1.start("m1", "dtaskd init --advertise m1:7460 --http m1:7461 --now"), "dtaskctl login")
	authority := filepath.Join(m1.data(), "tls", "ca.crt")
	report := filepath.Join(you.home(), "scan.json")
	const scans = " --sslv2 --sslv3 --tlsv1 --tlsv1_1 --tlsv1_2 --tlsv1_3 --resum --early_data --compression --reneg --elliptic_curves --certinfo"
	// gRPC asks for a certificate, which some scans can't do without. Any key will do.
	_, err := tlsconf.OpenWorkerKey(you.home())
	clustertest.Must(t, err)
	const key = " --cert " + tlsconf.WorkerKeyFile + " --key " + tlsconf.WorkerKeyFile
	you.must(scanner + scans + key + " --quiet --json_out " + report + " --certinfo_ca_file " + authority + " m1:7460 m1:7461")
	text, err := os.ReadFile(report)
	clustertest.Must(t, err)
	var found struct {
		Version string    `json:"sslyze_version"`
		Servers []finding `json:"server_scan_results"`
	}
	clustertest.Must(t, json.Unmarshal(text, &found))
	if len(found.Servers) != 2 {
		t.Fatalf("sslyze has scanned %d ports", len(found.Servers))
	}
	s.getsNoTicket(filepath.Join(filepath.Dir(scanner), "python"), authority)
	for _, f := range found.Servers {
		t.Run(fmt.Sprint("port ", f.Location.Port), func(t *testing.T) {
			if f.Connectivity != "COMPLETED" {
				t.Fatalf("sslyze %s could not connect: %s", found.Version, f.Error)
			}
			f.speaksOnlyTLS13(t)
			f.resumesNothing(t)
			f.hasStrongCurves(t)
			f.hasDocumentedChain(t)
		})
	}
}

// connectTLS connects with OpenSSL, by the arguments port, protocol, CA and request, and
// prints what was agreed on once an answer has come.
const connectTLS = `import socket, ssl, sys
port, protocol, ca, request = sys.argv[1:]
context = ssl.create_default_context(cafile=ca)
context.set_alpn_protocols([protocol])
with context.wrap_socket(socket.create_connection(("m1", int(port)), 10), server_hostname="m1") as s:
    s.sendall(request.encode().decode("unicode_escape").encode())
    answer = s.recv(9)
    print(s.version(), s.selected_alpn_protocol(), len(answer) > 0, s.session.has_ticket)
`

// getsNoTicket checks with OpenSSL, which the scanner's Python has, that neither port sends
// a ticket to a client that speaks its protocol: sslyze tests resumption in TLS 1.2.
func (s *site) getsNoTicket(python, authority string) {
	s.t.Helper()
	you := s.machines["you"]
	s.write("you/home/connect.py", connectTLS, 0o600)
	for _, c := range [][3]string{
		{"7460", "h2", `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0`},
		{"7461", "http/1.1", `GET /healthz HTTP/1.1\r\nHost: m1\r\n\r\n`},
	} {
		got := you.must(fmt.Sprintf("%s connect.py %s %s %s '%s'", python, c[0], c[1], authority, c[2]))
		if want := "TLSv1.3 " + c[1] + " True False\n"; got != want {
			s.t.Errorf("port %s: got %q, want %q", c[0], got, want)
		}
	}
}

// read reads the result of one scan.
func (f finding) read(t *testing.T, scan string, into any) {
	t.Helper()
	got := f.Result[scan]
	if got.Status != "COMPLETED" {
		t.Fatalf("%s: %s %s", scan, got.Status, got.Error)
	}
	clustertest.Must(t, json.Unmarshal(got.Result, into))
}

func (f finding) speaksOnlyTLS13(t *testing.T) {
	t.Helper()
	for _, version := range []string{"ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1", "tls_1_2", "tls_1_3"} {
		var got suite
		f.read(t, version+"_cipher_suites", &got)
		if got.Supported != (version == "tls_1_3") || got.Supported != (len(got.Accepted) > 0) {
			t.Errorf("%s: got %+v", version, got)
		}
		for _, c := range got.Accepted {
			t.Logf("%s: %s", version, c.Suite.Name)
			if c.Suite.KeySize < 128 {
				t.Errorf("%s: %s has a key of %d bits", version, c.Suite.Name, c.Suite.KeySize)
			}
		}
	}
}

// resumesNothing checks that sessions are not resumed, that no ticket for it is sent, and
// that there are no known faults of earlier versions.
func (f finding) resumesNothing(t *testing.T) {
	t.Helper()
	var early struct {
		Supported bool `json:"supports_early_data"`
	}
	// The port for gRPC closes the connection of this scan, which offers no protocol.
	if got := f.Result["tls_1_3_early_data"]; !strings.Contains(got.Error, "Connection was shut down by peer") {
		f.read(t, "tls_1_3_early_data", &early)
	}
	var compression struct {
		Supported bool `json:"supports_compression"`
	}
	f.read(t, "tls_compression", &compression)
	var renegotiation struct {
		Client bool `json:"is_vulnerable_to_client_renegotiation_dos"`
	}
	f.read(t, "session_renegotiation", &renegotiation)
	var resumption struct {
		ID     string `json:"session_id_resumption_result"`
		Ticket string `json:"tls_ticket_resumption_result"`
	}
	f.read(t, "session_resumption", &resumption)
	if early.Supported || compression.Supported || renegotiation.Client || resumption.ID == "FULLY_SUPPORTED" || resumption.Ticket == "FULLY_SUPPORTED" {
		t.Errorf("got %+v, %+v, %+v, %+v", early, compression, renegotiation, resumption)
	}
}

func (f finding) hasStrongCurves(t *testing.T) {
	t.Helper()
	var got struct {
		Supported []struct {
			Name string `json:"name"`
		} `json:"supported_curves"`
	}
	f.read(t, "elliptic_curves", &got)
	var names []string
	for _, c := range got.Supported {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	if want := []string{"X25519", "secp256r1", "secp384r1", "secp521r1"}; !slices.Equal(names, want) {
		t.Errorf("the curves are %v, want %v", names, want)
	}
}

// hasDocumentedChain checks that two certificates are sent, the coordinator's own and the
// CA's, and that the CA verifies the chain.
func (f finding) hasDocumentedChain(t *testing.T) {
	t.Helper()
	var got struct {
		Deployments []struct {
			Received []struct {
				Subject struct {
					Name string `json:"rfc4514_string"`
				} `json:"subject"`
				Key struct {
					Algorithm string `json:"algorithm"`
					Curve     string `json:"ec_curve_name"`
				} `json:"public_key"`
				Names struct {
					DNS []string `json:"dns_names"`
				} `json:"subject_alternative_name"`
			} `json:"received_certificate_chain"`
			Ordered bool `json:"received_chain_has_valid_order"`
			Paths   []struct {
				Successful bool `json:"was_validation_successful"`
				Store      struct {
					Name string `json:"name"`
				} `json:"trust_store"`
			} `json:"path_validation_results"`
		} `json:"certificate_deployments"`
	}
	f.read(t, "certificate_info", &got)
	if len(got.Deployments) != 1 || len(got.Deployments[0].Received) != 2 || !got.Deployments[0].Ordered {
		t.Fatalf("the certificates are %+v", got)
	}
	chain := got.Deployments[0].Received
	if !slices.Contains(chain[0].Names.DNS, "m1") || !strings.HasPrefix(chain[1].Subject.Name, "CN=dtask CA of cluster ") {
		t.Errorf("the chain is %+v", chain)
	}
	for _, c := range chain {
		if c.Key.Curve != "secp256r1" {
			t.Errorf("%s has a key of %s %s, want P-256", c.Subject.Name, c.Key.Algorithm, c.Key.Curve)
		}
	}
	trusted := false
	for _, p := range got.Deployments[0].Paths {
		if p.Successful != strings.Contains(strings.ToLower(p.Store.Name), "supplied") {
			t.Errorf("by the trust store %q: valid is %v", p.Store.Name, p.Successful)
		}
		trusted = trusted || p.Successful
	}
	if !trusted {
		t.Error("the CA of the cluster does not verify the chain")
	}
}
