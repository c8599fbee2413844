package faultfs

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/dtask/dtask/test/cluster"
)

// DataDirectory is a coordinator's data directory on its disk. Attach requires it as
// cluster.Config.DataDirectory. It is not the disk's root, so that dtaskd may rename
// it and must make the new name durable.
const DataDirectory = "data"

// Disks maps the names of a cluster's coordinators to their disks.
type Disks map[string]*Disk

// Attach mounts an empty disk for each coordinator of a cluster that has not been
// started.
func Attach(ctx context.Context, program string, c *cluster.Cluster) (Disks, error) {
	disks := make(Disks)
	for _, n := range c.Coordinators() {
		d, err := New(ctx, program, filepath.Dir(n.DataDir))
		if err != nil {
			return nil, errors.Join(err, disks.Close())
		}
		disks[n.Name] = d
	}
	return disks, nil
}

// Export copies the contents of each disk to a directory beside its mount point,
// with the suffix ".disk": a closed disk is empty.
func (all Disks) Export() error {
	var errs []error
	for _, d := range all {
		errs = append(errs, d.Export(d.Dir+".disk"))
	}
	return errors.Join(errs...)
}

// Close unmounts all disks. The coordinators must have exited.
func (all Disks) Close() error {
	var errs []error
	for _, d := range all {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}
