package auth

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
)

// Purpose is what a join string is for. Its numbers are in join strings and in the log.
type Purpose uint8

// The purposes.
const (
	JoinCoordinator Purpose = 1
	JoinWorker      Purpose = 2
	JoinUser        Purpose = 3
)

var purposeNames = [...]string{JoinCoordinator: "coordinator", JoinWorker: "worker", JoinUser: "user"}

// String returns the name of the purpose.
func (p Purpose) String() string {
	if p.valid() {
		return purposeNames[p]
	}
	return fmt.Sprintf("purpose(%d)", uint8(p))
}

func (p Purpose) valid() bool { return p >= JoinCoordinator && p <= JoinUser }

// ParsePurpose returns the purpose of a name.
func ParsePurpose(name string) (Purpose, error) {
	for p := JoinCoordinator; p <= JoinUser; p++ {
		if p.String() == name {
			return p, nil
		}
	}
	return 0, fmt.Errorf("invalid purpose %q: must be coordinator, worker or user", name)
}

// DefaultUses is how often a join string of the purpose works unless its maker says. A string
// for workers is for a fleet, and bounded, so that one that leaks can't fill the cluster's
// table of identities.
func (p Purpose) DefaultUses() uint32 {
	return [...]uint32{JoinCoordinator: 2, JoinWorker: 1000, JoinUser: 1}[p]
}

// command is what a user types with a join string of the purpose.
func (p Purpose) command() string {
	return [...]string{JoinCoordinator: "dtaskd join", JoinWorker: "dtask-worker --join", JoinUser: "dtaskctl login"}[p]
}

const (
	joinPrefix = "dtj1-"
	// joinVersion is the version of a string without a name of the cluster, which all
	// programs read, and namedJoinVersion that of one with a name.
	joinVersion      = 1
	namedJoinVersion = 2
	// JoinSecretBytes is the size of the secret.
	JoinSecretBytes = 16
	// MaxJoinID is the largest number of a join token.
	MaxJoinID        = 1<<(8*joinIDBytes) - 1
	joinIDBytes      = 5
	clusterBytes     = 16
	maxJoinAddresses = 8
	maxJoinAddress   = 255
)

// joinEncoding has no letters that are easily confused. Parsing ignores case.
var joinEncoding = base32.NewEncoding("abcdefghjkmnpqrstvwxyz0123456789").WithPadding(base32.NoPadding)

// JoinString is everything that a machine needs to join a cluster that it has never met:
// where it is, how it proves that it is the one, and a secret by which the cluster
// recognizes the machine. In text it is dtj1- and base32 of: version(1) cluster(16)
// CA key hash(32) id(5) secret(16) purpose(1) addresses CRC-32(4), where addresses are a
// count(1) and for each a length(1) and its text. In version 2, a length(1) and the name of
// the cluster follow the addresses.
type JoinString struct {
	ClusterID string            // 32 hexadecimal digits
	CAKey     [sha256.Size]byte // SHA-256 of the public key of the cluster's CA
	ID        uint64            // number of the join token, 1 to MaxJoinID
	Secret    [JoinSecretBytes]byte
	Purpose   Purpose
	Addresses []string // HOST:PORT of coordinators, 1–8
	// ClusterName is the name of the cluster; empty: none. Programs before version 2 refuse
	// a string that has one.
	ClusterName string
}

// NewJoinSecret makes the secret of a join token.
func NewJoinSecret() (secret [JoinSecretBytes]byte) {
	_, _ = rand.Read(secret[:]) // never fails
	return secret
}

// Hash is what the replicated state stores of the secret.
func (j *JoinString) Hash() [sha256.Size]byte { return sha256.Sum256(j.Secret[:]) }

// Text returns the string that users copy. It returns an error if a field has not the
// form that its comment states.
func (j *JoinString) Text() (Secret, error) {
	cluster, err := hex.DecodeString(j.ClusterID)
	if err != nil || len(cluster) != clusterBytes {
		return "", fmt.Errorf("invalid cluster ID %q", j.ClusterID)
	}
	if j.ID == 0 || j.ID > MaxJoinID {
		return "", fmt.Errorf("invalid number %d of a join token", j.ID)
	}
	if n := len(j.Addresses); n == 0 || n > maxJoinAddresses || !j.Purpose.valid() {
		return "", fmt.Errorf("a join string for %s needs 1–%d addresses, not %d", j.Purpose, maxJoinAddresses, n)
	}
	version := byte(joinVersion)
	if j.ClusterName != "" {
		if err := CheckClusterName(j.ClusterName); err != nil {
			return "", err
		}
		version = namedJoinVersion
	}
	var b bytes.Buffer
	b.WriteByte(version)
	b.Write(cluster)
	b.Write(j.CAKey[:])
	b.Write(binary.BigEndian.AppendUint64(nil, j.ID)[8-joinIDBytes:])
	b.Write(j.Secret[:])
	b.WriteByte(byte(j.Purpose))
	b.WriteByte(byte(len(j.Addresses))) //nolint:gosec // at most maxJoinAddresses
	for _, a := range j.Addresses {
		if a == "" || len(a) > maxJoinAddress {
			return "", fmt.Errorf("invalid address of %d bytes in a join string: must have 1–%d", len(a), maxJoinAddress)
		}
		b.WriteByte(byte(len(a))) //nolint:gosec // at most maxJoinAddress
		b.WriteString(a)
	}
	if j.ClusterName != "" {
		b.WriteByte(byte(len(j.ClusterName))) //nolint:gosec // at most maxClusterName
		b.WriteString(j.ClusterName)
	}
	sum := binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(b.Bytes()))
	b.Write(sum)
	return Secret(joinPrefix + joinEncoding.EncodeToString(b.Bytes())), nil
}

// IsJoinString reports whether a text is meant as a join string: an address cannot begin
// like one.
func IsJoinString(text string) bool {
	text = strings.TrimSpace(text)
	return len(text) >= len(joinPrefix) && strings.EqualFold(text[:len(joinPrefix)], joinPrefix)
}

var errDamagedJoin = errors.New("damaged join string: its checksum does not match, so it was cut or mistyped; copy it again")

// ParseJoinString returns the join string of a text and checks that it is for a purpose.
// Case and space around it do not matter. Errors never contain the text.
func ParseJoinString(text string, want Purpose) (*JoinString, error) {
	text = strings.ToLower(strings.TrimSpace(text))
	body, ok := strings.CutPrefix(text, joinPrefix)
	if !ok {
		return nil, fmt.Errorf("not a join string: it must begin with %s; dtaskctl join-token create makes one", joinPrefix)
	}
	data, err := joinEncoding.DecodeString(body)
	// The last character may have bits that belong to no byte: only one text is valid.
	if err != nil || len(data) < 5 || joinEncoding.EncodeToString(data) != body {
		return nil, errDamagedJoin
	}
	data, sum := data[:len(data)-4], binary.BigEndian.Uint32(data[len(data)-4:])
	if crc32.ChecksumIEEE(data) != sum {
		return nil, errDamagedJoin
	}
	version := data[0]
	if version != joinVersion && version != namedJoinVersion {
		return nil, fmt.Errorf("join string of version %d: this version of dtask reads versions up to %d", version, namedJoinVersion)
	}
	j, err := decodeJoin(data[1:], version == namedJoinVersion)
	switch {
	case err != nil:
		return nil, err
	case j.Purpose != want:
		return nil, fmt.Errorf("this join string is for a %s (%s STRING), not for a %s: dtaskctl join-token create %s makes one",
			j.Purpose, j.Purpose.command(), want, want)
	}
	return j, nil
}

// decodeJoin reads the fields between the version and the checksum; named: the last one is the
// name of the cluster.
func decodeJoin(data []byte, named bool) (*JoinString, error) {
	j := new(JoinString)
	next := func(n int) []byte {
		if len(data) < n {
			data = nil
			return make([]byte, n)
		}
		part := data[:n]
		data = data[n:]
		return part
	}
	j.ClusterID = hex.EncodeToString(next(clusterBytes))
	copy(j.CAKey[:], next(len(j.CAKey)))
	for _, b := range next(joinIDBytes) {
		j.ID = j.ID<<8 | uint64(b)
	}
	copy(j.Secret[:], next(JoinSecretBytes))
	j.Purpose = Purpose(next(1)[0])
	count := int(next(1)[0])
	for range min(count, maxJoinAddresses) {
		j.Addresses = append(j.Addresses, string(next(int(next(1)[0]))))
	}
	if named {
		j.ClusterName = string(next(int(next(1)[0])))
	}
	if named && CheckClusterName(j.ClusterName) != nil || j.ID == 0 || !j.Purpose.valid() || count == 0 || count > maxJoinAddresses || len(data) > 0 || j.Addresses[count-1] == "" {
		return nil, errors.New("malformed join string: ask for a new one")
	}
	return j, nil
}
