package offline

import (
	"errors"
	"time"

	"github.com/dtask/dtask/coordinator/membership/datadir"
)

// Discarded is what Discard moved aside. Its JSON form is part of the stable surface.
type Discarded struct {
	DataDir   string            `json:"data_dir"`
	ServerID  string            `json:"server_id"`
	ClusterID string            `json:"cluster_id"`
	Conflict  *datadir.Conflict `json:"conflict"`          // null = none
	KeptAs    string            `json:"kept_as,omitempty"` // empty before it was moved
}

// Discard moves the content of a stopped replica's directory aside and leaves an empty
// one, with which the replica rejoins its cluster under a new server id. Unless
// confirmed is set, it only returns what it would do. It also takes a damaged directory,
// as long as the identity can be read.
func Discard(path string, confirmed bool, now time.Time) (result *Discarded, err error) {
	held, err := datadir.Hold(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	d := &Discarded{DataDir: held.Path, ServerID: held.Identity.ServerID, ClusterID: held.Identity.ClusterID}
	if datadir.IsQuarantined(path) {
		return nil, refused("%s is quarantined already: start the replica on its --data-dir", path)
	}
	d.Conflict, err = datadir.ReadConflict(held.Path)
	if confirmed && err != nil {
		err = nil // the content is kept, so it can be read later
	}
	if err != nil || !confirmed {
		return d, err
	}
	d.KeptAs, err = datadir.Discard(held.Path, now)
	return d, err
}
