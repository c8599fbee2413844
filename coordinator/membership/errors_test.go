package membership

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestErrorsOfPeersAreLoggedWithoutWhatGRPCAdds(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"dial tcp 10.0.0.1:1: connect: connection refused": status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.1:1: connect: connection refused"`),
		"no leader known":              status.Error(codes.Unavailable, "no leader known"),
		"leadership changes too often": errors.New("leadership changes too often"),
	} {
		if got := errorText(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
