package coordinator

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/coordinator/transport"
	"github.com/dtask/dtask/internal/loopback"
	"github.com/dtask/dtask/internal/tlsconf"
)

const (
	// renewalWarning is how long before the end of its certificate a replica raises an alarm.
	renewalWarning = 10 * 24 * time.Hour
	// rotationWarning is how long before the end of its CA a replica raises an alarm: in
	// that time, new certificates are valid for less than they should be.
	rotationWarning = tlsconf.DefaultValidity
)

// security is what a replica with Config.TLSDir has. Its methods may be called on nil,
// which is plaintext.
type security struct {
	watcher *tlsconf.Watcher
	peering tlsconf.Peering
	http    string // --http
	log     *slog.Logger
	files   sync.Mutex // held while files of Config.TLSDir are changed or keys are read
	// adopted wakes renewLinks; size 1. renewed is the certificate for which it has ended;
	// renews is false until it runs.
	adopted chan struct{}
	renews  atomic.Bool
	renewed atomic.Pointer[tlsconf.Replica]

	mu      sync.Mutex // guards what follows
	refused error      // of the last changed files; nil if they are in use
	peers   map[string]*tlsconf.DateError
}

// openSecurity loads the certificate; it returns nil without Config.TLSDir.
func openSecurity(cfg *Config) (*security, error) {
	if cfg.TLSDir == "" {
		return nil, nil //nolint:nilnil // plaintext
	}
	s := &security{http: cfg.HTTP, log: cfg.Logger, adopted: make(chan struct{}, 1), peers: make(map[string]*tlsconf.DateError)}
	var err error
	s.watcher, err = tlsconf.NewWatcher(tlsconf.WatcherConfig{
		Dir: cfg.TLSDir, Interval: cfg.TimeScale.Scale(tlsconf.WatchInterval), Checked: s.noteFiles, Reloaded: s.noteReload,
	})
	if err != nil {
		return nil, fmt.Errorf("--tls-dir: %w", err)
	}
	s.peering = tlsconf.Peering{Source: s.watcher.Current, Now: cfg.Wall, PeerDates: s.notePeer}
	return s, nil
}

// checkCertificate checks the files of --tls-dir, which must be this replica's.
func (c *Config) checkCertificate() error {
	if c.TLSDir == "" {
		return nil
	}
	r, err := tlsconf.LoadReplica(c.TLSDir)
	if err != nil {
		return fmt.Errorf("--tls-dir: %w", err)
	}
	if r.ServerID != c.ID {
		return fmt.Errorf("invalid --tls-dir %s: its certificate is of replica %s, and --id is %s; issue one with dtaskctl tls issue --replica %s",
			c.TLSDir, r.ServerID, c.ID, c.ID)
	}
	return nil
}

// errOtherCluster is wrapped by the error about a data directory that doesn't belong to
// the cluster of the certificate.
var errOtherCluster = errors.New("certificate of another cluster")

// checkCluster returns an error if the data directory belongs to another cluster than the
// certificate; "" is a cluster that is not known yet.
func (s *security) checkCluster(cfg *Config, clusterID string) error {
	if s == nil || clusterID == "" {
		return nil
	}
	if own := s.watcher.Current().ClusterID; own != clusterID {
		return fmt.Errorf("%w: the data directory %s belongs to cluster %s, and the certificate in %s to cluster %s: "+
			"use the directories of one cluster, or issue certificates for this one with dtaskctl tls issue --cluster-id %s",
			errOtherCluster, cfg.DataDir, clusterID, cfg.TLSDir, own, clusterID)
	}
	return nil
}

// newClusterID is the id of a cluster that this replica founds.
func (s *security) newClusterID() string {
	if s == nil {
		return tlsconf.NewClusterID()
	}
	return s.watcher.Current().ClusterID
}

// secureReadBuffer is the buffer of frames of each connection with TLS: none. Package tls has
// buffered a whole record already, so that the parts of a frame cost no system calls.
const secureReadBuffer = 0

// serverOptions are the options of the gRPC server.
func (s *security) serverOptions() []grpc.ServerOption {
	if s == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.Creds(serverCredentials()), grpc.ReadBufferSize(secureReadBuffer)}
}

// raftPeering secures the connections to peers; nil in plaintext.
func (s *security) raftPeering() *tlsconf.Peering {
	if s == nil {
		return nil
	}
	return &s.peering
}

// newPeers makes the connections to other replicas.
func (r *replica) newPeers() *membership.Peers {
	dial := r.cfg.Seams.Network.Dial
	if r.security == nil {
		return membership.NewPeers(dial)
	}
	r.peerCreds = transport.ClientCredentials(r.security.peering)
	return membership.NewSecurePeers(dial, r.peerCreds)
}

// secureHTTP makes the HTTP port serve HTTPS if other machines can reach it.
func (s *security) secureHTTP(l net.Listener) net.Listener {
	if s == nil || loopback.Is(s.http) {
		return l
	}
	return tls.NewListener(l, s.peering.HTTPConfig())
}

// hostNames are the names in the certificate.
func (s *security) hostNames() []string {
	if s == nil {
		return nil
	}
	return s.watcher.Current().Cert.DNSNames
}

// noteFiles notes whether the files were accepted; err is nil if they are in use.
func (s *security) noteFiles(err error) {
	s.mu.Lock()
	before := s.refused
	s.refused = err
	s.mu.Unlock()
	if err != nil && (before == nil || before.Error() != err.Error()) {
		s.log.Error("changed certificate refused; the old one stays in use", "err", err)
	}
}

func (s *security) noteReload(r *tlsconf.Replica) {
	s.log.Info("using changed certificate", "expires", r.Cert.NotAfter)
}

// notePeer notes the dates of another replica's certificate.
func (s *security) notePeer(serverID string, err *tlsconf.DateError) {
	s.mu.Lock()
	before := s.peers[serverID]
	if err == nil {
		delete(s.peers, serverID)
	} else {
		s.peers[serverID] = err
	}
	s.mu.Unlock()
	if err != nil && before == nil {
		s.log.Warn("certificate of a replica is not valid by this replica's clock; connecting nevertheless", "peer", serverID, "err", err)
	}
}

// setAlarms raises and clears the alarms about certificates.
func (s *security) setAlarms(alarms *membership.Alarms, now time.Time) {
	if s == nil {
		return
	}
	current := s.watcher.Current()
	s.mu.Lock()
	defer s.mu.Unlock()
	var problems []string
	ca := current.CACert()
	if left := ca.NotAfter.Sub(now); left < rotationWarning {
		problems = append(problems, fmt.Sprintf("the CA of the cluster expires in %s, at %s: replace it with dtaskctl tls rotate-ca",
			left.Round(time.Minute), ca.NotAfter.UTC().Format(time.RFC3339)))
	}
	if err := current.OwnDates(now); err != nil {
		problems = append(problems, err.Error())
	} else if left := current.Cert.NotAfter.Sub(now); left < renewalWarning && current.Cert.NotAfter.Before(ca.NotAfter) {
		problems = append(problems, fmt.Sprintf("the certificate of replica %s expires in %s, at %s: issue a new one with dtaskctl tls issue",
			current.ServerID, left.Round(time.Minute), current.Cert.NotAfter.UTC().Format(time.RFC3339)))
	}
	if s.refused != nil {
		problems = append(problems, "the changed files are refused: "+s.refused.Error())
	}
	alarms.Set(membership.AlarmCertificate, len(problems) > 0, strings.Join(problems, "; "))
	problems = nil
	for _, id := range slices.Sorted(maps.Keys(s.peers)) {
		problems = append(problems, s.peers[id].Error())
	}
	alarms.Set(membership.AlarmPeerCertificate, len(problems) > 0, strings.Join(problems, "; "))
}

// securityMetrics are the metrics of a replica with TLS.
type securityMetrics struct {
	security   *security
	handshakes func() map[string]uint64
}

// Describe implements prometheus.Collector.
func (m securityMetrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m securityMetrics) Collect(ch chan<- prometheus.Metric) {
	current := m.security.watcher.Current()
	expires, ca := current.Cert.NotAfter.Unix(), current.CACert().NotAfter.Unix()
	collectGauges(ch, []gauge{{
		"tls_certificate_expires_timestamp_seconds",
		"Time at which the certificate of this replica expires, in seconds since 1970; with --tls-dir only.", float64(expires),
	}, {
		"tls_ca_expires_timestamp_seconds",
		"Time at which the CA of this replica's certificate expires, in seconds since 1970; with --tls-dir only.", float64(ca),
	}})
	ch <- prometheus.MustNewConstMetric(
		desc("tls_reload_failures_total", "Reads of the files in --tls-dir that were refused; the certificate in use stays."),
		prometheus.CounterValue, float64(m.security.watcher.Failures()))
	d := desc("tls_handshakes_total", "TLS handshakes on the port for clients, workers and replicas, by result; with --tls-dir only.", "result")
	for result, n := range m.handshakes() {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), result)
	}
}
