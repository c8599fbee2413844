package client

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// clusterKey is the metadata key under which a call names the cluster of this client,
// and a response the cluster of the coordinator. Package api has the same.
const clusterKey = "dtask-cluster-id"

// clusterIDDigits is the length of a cluster ID.
const clusterIDDigits = 32

// checkClusterID checks the form of a cluster ID.
func checkClusterID(id string) error {
	valid := len(id) == clusterIDDigits && !slices.ContainsFunc([]byte(id), func(c byte) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'f')
	})
	if !valid {
		return fmt.Errorf("invalid cluster ID %q: must be %d hexadecimal digits in lower case", id, clusterIDDigits)
	}
	return nil
}

// identity is the cluster that a client belongs to. It is set once: by
// Config.Cluster, or by the first coordinator that answers.
type identity struct {
	id atomic.Pointer[string]
	// trusts is called with the CAs that a coordinator trusts, as its response names them;
	// nil: the client has no CAs.
	trusts func(conn *grpc.ClientConn, named string)
}

// get returns the cluster's ID; empty while unknown.
func (i *identity) get() string {
	if id := i.id.Load(); id != nil {
		return *id
	}
	return ""
}

// admit adopts the cluster of a response if none is known, and returns a status
// if the response is from another cluster.
func (i *identity) admit(conn *grpc.ClientConn, header metadata.MD) error {
	if named := header.Get(trustKey); i.trusts != nil && len(named) == 1 {
		i.trusts(conn, named[0])
	}
	for _, id := range header.Get(clusterKey) {
		if id != "" && !i.id.CompareAndSwap(nil, &id) && *i.id.Load() != id {
			return foreignStatus(id)
		}
	}
	return nil
}

// foreignStatus is the refusal of a coordinator of another cluster.
func foreignStatus(id string) error {
	st := status.New(codes.FailedPrecondition, "another cluster")
	with, err := st.WithDetails(&dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_FOREIGN_CLUSTER, ClusterId: id})
	if err != nil { // the ID can't be encoded
		return st.Err()
	}
	return with.Err()
}

// name adds the cluster to the metadata of a call.
func (i *identity) name(ctx context.Context) context.Context {
	if id := i.get(); id != "" {
		return metadata.AppendToOutgoingContext(ctx, clusterKey, id)
	}
	return ctx
}

// unary is the interceptor of unary calls.
func (i *identity) unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	var header metadata.MD
	err := invoke(i.name(ctx), method, req, reply, conn, append(slices.Clip(opts), grpc.Header(&header))...)
	return cmp.Or(i.admit(conn, header), err)
}

// stream is the interceptor of streams.
func (i *identity) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(i.name(ctx), desc, conn, method, opts...)
	if err != nil {
		return nil, err
	}
	// Context commits the stream to its connection. Otherwise gRPC may open a stream that
	// the server did not process again, and while that waits for a connection, it holds
	// the lock that SendMsg, Encode and Context need. The callers retry by themselves.
	_ = s.Context()
	return &identifiedStream{ClientStream: s, identity: i, conn: conn}, nil
}

// An identifiedStream checks the cluster of the coordinator before it returns
// the first message. One goroutine receives.
type identifiedStream struct {
	grpc.ClientStream

	identity *identity
	conn     *grpc.ClientConn
	checked  bool
}

// RecvMsg implements grpc.ClientStream.
func (s *identifiedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if s.checked {
		return err //nolint:wrapcheck // a status
	}
	s.checked = true
	header, _ := s.Header() // has arrived, or the stream has ended with err
	return cmp.Or(s.identity.admit(s.conn, header), err)
}

// Cluster returns the ID of the client's cluster: Config.Cluster, or that of the first
// coordinator that answered. It is empty until one has, or if the ID is malformed.
func (c *Client) Cluster() string {
	id := c.identity.get()
	if checkClusterID(id) != nil {
		return "" // a coordinator sends what it likes, and callers name files by the ID
	}
	return id
}

// A ForeignAddress is the address of a coordinator that belongs to another
// cluster than the client.
type ForeignAddress struct {
	Address string
	Cluster string // that it belongs to
	Own     string // the client's cluster
}

// String describes the address and what to do.
func (f ForeignAddress) String() string { return f.Address + " " + f.what() + ": " + foreignAdvice }

func (f ForeignAddress) what() string {
	return fmt.Sprintf("belongs to another cluster: %s, not %s", f.Cluster, f.Own)
}

const foreignAdvice = "check the addresses; a recovered cluster has a new ID"

// ForeignAddresses returns the addresses that were found to belong to another
// cluster, each once, in the order in which they were found.
func (c *Client) ForeignAddresses() []ForeignAddress {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.foreign)
}

// noteForeign records that addr belongs to another cluster, and returns the
// message.
func (c *Client) noteForeign(addr, cluster string) string {
	c.book.leave(addr)
	f := ForeignAddress{Address: addr, Cluster: cluster, Own: c.identity.get()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.ContainsFunc(c.foreign, func(x ForeignAddress) bool { return x.Address == addr }) && len(c.foreign) < maxForeign {
		c.foreign = append(c.foreign, f)
	}
	return f.what()
}

// maxForeign bounds the addresses that are reported.
const maxForeign = 64
