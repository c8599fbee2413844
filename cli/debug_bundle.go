package cli

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
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
	packed := gzip.NewWriter(to)
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
	err := archive.WriteHeader(&tar.Header{Name: path.Join(debugRoot, name), Mode: 0o600, Size: int64(len(data)), ModTime: b.at})
	if err == nil {
		_, err = archive.Write(data)
	}
	if err != nil {
		return fmt.Errorf("adding %s: %w", name, err)
	}
	return nil
}

// A debugFile is a debug bundle that gets its name when it is complete.
type debugFile struct {
	path  string
	temp  *os.File
	bytes int64 // set by keep
}

// open creates the file under a temporary name, with mode 0600. The caller calls discard.
func (f *debugFile) open(a *app) (err error) {
	f.path = a.created(f.path)
	if _, err := os.Lstat(f.path); err == nil {
		return usagef("--out %s exists: choose another file, or remove it", f.path)
	}
	f.temp, err = os.CreateTemp(filepath.Dir(f.path), ".dtaskctl-*")
	if err != nil {
		return fmt.Errorf("writing --out %s: %w", f.path, pathCause(err))
	}
	return nil
}

// keep writes the bundle and gives the file its name.
func (f *debugFile) keep(b *debugBundle) error {
	err := b.write(f.temp)
	if err == nil {
		f.bytes, err = f.temp.Seek(0, io.SeekCurrent)
	}
	err = errors.Join(err, f.temp.Sync(), f.temp.Close())
	if err == nil {
		err = os.Rename(f.temp.Name(), f.path)
	}
	if err != nil {
		return fmt.Errorf("writing --out %s: %w", f.path, pathCause(err))
	}
	f.temp = nil
	return nil
}

// discard removes the temporary file unless it was kept.
func (f *debugFile) discard() {
	if f.temp != nil {
		_ = errors.Join(f.temp.Close(), os.Remove(f.temp.Name())) // nothing is lost
	}
}
