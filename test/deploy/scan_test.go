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
	s := newSite(t, "m1", "you")
	m1, you := s.machines["m1"], s.machines["you"]
	s.await(m1.start("m1", "dtaskd init --advertise m1:7460 --http m1:7461 --now"), "dtaskctl login")
	authority := filepath.Join(m1.data(), "tls", "ca.crt")
	report := filepath.Join(you.home(), "scan.json")
	you.must(scanner + " --mozilla_config disable --quiet --json_out " + report + " --certinfo_ca_file " + authority + " m1:7460 m1:7461")
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

// resumesNothing checks that there is neither resumption nor early data, which it needs,
// nor a known fault of earlier versions.
func (f finding) resumesNothing(t *testing.T) {
	t.Helper()
	var early struct {
		Supported bool `json:"supports_early_data"`
	}
	f.read(t, "tls_1_3_early_data", &early)
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
	if want := []string{"X25519", "prime256v1", "secp384r1", "secp521r1"}; !slices.Equal(names, want) {
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
