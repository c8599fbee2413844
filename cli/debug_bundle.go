package cli

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/buildinfo"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// debugRoot is the directory that a debug bundle unpacks to.
const debugRoot = "dtask-debug"

// plainName matches what may be a name in a bundle. Names come from coordinators, and must
// not lead out of the directory of the one that sent them.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$`)

// debugBundle is the content of a debug bundle.
type debugBundle struct {
	manifest document.DebugManifest
	cluster  *dtaskv1.StatusResponse // nil: unknown
	replicas []client.ReplicaDebug   // in the order of the manifest
	at       time.Time
	size     uint64 // of the archive, in bytes; set by write
}

func newDebugBundle(replicas []client.ReplicaDebug, cluster *dtaskv1.StatusResponse, at time.Time) *debugBundle {
	b := &debugBundle{
		manifest: document.DebugManifest{CreatedAt: document.Time(at.UnixMilli()), Version: buildinfo.Version(), Replicas: []document.DebugReplica{}},
		cluster:  cluster, replicas: replicas, at: at,
	}
	for i, r := range replicas {
		doc := document.DebugReplica{ID: r.ServerID, Address: r.Address, Directory: r.ServerID, Files: []string{}}
		if !plainName.MatchString(r.ServerID) {
			doc.Directory = fmt.Sprintf("replica-%d", i+1)
		}
		for _, f := range r.Files {
			if plainName.MatchString(f.Name) {
				doc.Files = append(doc.Files, f.Name)
			}
		}
		if r.Err != nil {
			doc.Error = new(r.Err.Error())
		}
		b.manifest.Replicas = append(b.manifest.Replicas, doc)
	}
	return b
}

// write writes the bundle as a compressed archive.
func (b *debugBundle) write(to io.Writer) error {
	packed := gzip.NewWriter(&countingWriter{to, &b.size})
	archive := tar.NewWriter(packed)
	err := b.addJSON(archive, "manifest.json", b.manifest)
	if err == nil && b.cluster != nil {
		err = b.addJSON(archive, "status.json", document.NewCluster(b.cluster))
	}
	for i, r := range b.replicas {
		for _, f := range r.Files {
			if err == nil && plainName.MatchString(f.Name) {
				err = b.add(archive, path.Join(b.manifest.Replicas[i].Directory, f.Name), f.Data)
			}
		}
	}
	return errors.Join(err, archive.Close(), packed.Close())
}

func (b *debugBundle) addJSON(archive *tar.Writer, name string, doc any) error {
	text, err := document.MarshalIndent(doc)
	if err != nil {
		return err
	}
	return b.add(archive, name, append(text, '\n'))
}

func (b *debugBundle) add(archive *tar.Writer, name string, data []byte) error {
	err := archive.WriteHeader(&tar.Header{Name: path.Join(debugRoot, name), Mode: 0o600, Size: int64(len(data)), ModTime: b.at.Truncate(time.Second)})
	if err == nil {
		_, err = archive.Write(data)
	}
	if err != nil {
		return fmt.Errorf("adding %s: %w", name, err)
	}
	return nil
}

// countingWriter adds the bytes that are written to n.
type countingWriter struct {
	io.Writer

	n *uint64
}

// Write implements io.Writer.
func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	*c.n += uint64(n) //nolint:gosec // not negative
	return n, err
}
