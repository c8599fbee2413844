package coordinator_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/coordinator"
)

func TestAClientNeverMixesTwoClusters(t *testing.T) {
	t.Parallel()
	var addresses [2]string
	var stops [2]func()
	var clusters [2]string
	for i := range 2 {
		c, stop := runWith(t, coordinator.Config{DataDir: t.TempDir(), Started: func(listen, _ string) { addresses[i] = listen }})
		stops[i] = stop
		submitted(t, c)
		who, err := c.Identify(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		clusters[i] = who.GetClusterId()
	}
	defer stops[1]()
	c, err := client.New(client.Config{Addrs: addresses[:], Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	submitted(t, c)
	stops[0]()
	_, err = c.Job(t.Context(), "1", client.ReadOptions{})
	want := client.ForeignAddress{Address: addresses[1], Cluster: clusters[1], Own: clusters[0]}
	if got := c.ForeignAddresses(); !errors.Is(err, client.ErrUnreachable) || len(got) != 1 || got[0] != want {
		t.Errorf("got %v and foreign addresses %v, want ErrUnreachable and %v", err, got, want)
	}
	pinned, err := client.New(client.Config{Addrs: addresses[1:], Cluster: clusters[0]})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pinned.Close() }()
	if _, err := pinned.Job(t.Context(), "1", client.ReadOptions{}); !errors.Is(err, client.ErrForeignCluster) {
		t.Errorf("pinned: got %v, want ErrForeignCluster", err)
	}
}
