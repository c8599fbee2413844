package faultfs

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/dtask/dtask/test/cluster"
)

// DataFolder is the data directory of a coordinator on its disk: what
// cluster.Config.DataFolder must be for Attach. It is not the disk's root, so
// that the product may rename it and must make it durable.
const DataFolder = "data"

// Disks are the disks of a cluster's coordinators, by their names.
type Disks map[string]*Disk

// Attach mounts an empty disk for every coordinator of a cluster that was not
// started yet.
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

// Export copies what is on each disk to a directory beside the place where it is
// mounted, named like that with ".disk" behind it: a closed disk is empty.
func (all Disks) Export() error {
	var errs []error
	for _, d := range all {
		errs = append(errs, d.Export(d.Dir+".disk"))
	}
	return errors.Join(errs...)
}

// Close unmounts all; the coordinators must have ended.
func (all Disks) Close() error {
	var errs []error
	for _, d := range all {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}
